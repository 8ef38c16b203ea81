// SPDX-License-Identifier: BSD-3-Clause
// fwd_seeds_test.cpp — the forward kernel of Hopper under many schedules: no seed breaks a rule of
// the machine, and all of them give the same bits. fwd_sm90_test.cpp judges the numbers.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "backend/launch/launch.h"
#include "backend/sim/runtime.h"
#include "core/tuning.h"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/variants.h"
#include "sim/kit.h"
#include "tests/kit/thorough.h"

namespace fa3::sim {
namespace {

using namespace sm90;

// Device memory filled with small numbers, none of them alike.
class Memory {
 public:
  Memory(SimRuntime& runtime, size_t elements, const char* name) : runtime_(runtime) {
    std::vector<u16> values(elements);
    for (size_t i = 0; i < elements; ++i) {  // BF16 in ±[1/4, 1); pairs of E4M3 without NaN
      const u64 z = (i + 1) * 0x9E3779B97F4A7C15ull;
      values[i] = static_cast<u16>(0x3E00 | (z >> 40 & 0x1F7) | (z >> 63 << 15));
    }
    data_ = runtime.allocate(elements * sizeof(u16), name);
    runtime.upload(data_, values.data(), elements * sizeof(u16));
  }
  ~Memory() { runtime_.release(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }

 private:
  SimRuntime& runtime_;
  void* data_;
};

Problem problem_of(const FwdRow& row, fa3_mask mask) {
  Problem p;
  p.batch = 1;
  // On two SMs, enough Q tiles for three consumers, or too few.
  p.heads_q = p.heads_kv = row.config.tile.consumer_wgs == 3 ? 3 : 1;
  p.head_dim_qk = row.config.tile.head_dim_qk;
  p.head_dim_v = row.config.tile.head_dim_v;
  p.q.rows = row.max_seqlen_q == 64 ? 60 : row.config.tile.q() + 70;
  p.kv.rows = 3 * row.config.tile.kv - 5;
  p.q.max_seqlen = p.q.rows, p.kv.max_seqlen = p.kv.rows;
  p.mask = mask;
  p.left = 70, p.right = 9;
  p.softmax_scale = 0.1;
  const FwdConfig& c = row.config;
  const fa3_dtype qk = !c.types.scaled() ? FA3_BF16 : c.types.v8() ? FA3_F8_E4M3 : FA3_I8;
  for (const TensorId id : {kQ, kK})
    p.layout[id] = {qk, 0, p.heads_q * p.head_dim_qk, p.head_dim_qk};
  p.layout[kV] = {c.types.v8() ? FA3_F8_E4M3 : FA3_BF16, 0, p.heads_q * p.head_dim_v, p.head_dim_v};
  p.layout[kO] = {FA3_BF16, 0, p.heads_q * p.head_dim_v, p.head_dim_v};
  p.layout[kLse] = {FA3_F32, 0, 1, p.q.rows};
  return p;
}

class SimFwdSeeds : public testing::TestWithParam<fa3_mask> {};

TEST_P(SimFwdSeeds, EveryRow_SameBits) {
  auto opened = SimRuntime::open({});
  ASSERT_TRUE(opened.ok()) << opened.status().message;
  SimRuntime& runtime = *opened.value();
  DeviceInfo device;
  device.backend = FA3_BACKEND_SIM;
  device.sm = 90;
  device.multiprocessors = 2;
  size_t turn = GetParam();
  for (const FwdRow& row : kFwdRows) {
    if (!kit::due(turn++, 6)) continue;
    if (kSanitized && row.config.tile.head_dim_qk != kit::kSanitizedHeadDim) continue;
    const MaskKind mask = GetParam() == FA3_MASK_FULL     ? MaskKind::kFull
                          : GetParam() == FA3_MASK_CAUSAL ? MaskKind::kCausal
                                                          : MaskKind::kWindow;
    if (!takes(row, mask)) continue;
    const Operands operands = *std::find_if(std::begin(kOperands), std::end(kOperands),
                                            [&](Operands each) { return row.takes(each); });
    if (!compiled_ahead(row).has(ahead({.mask = mask, .operands = operands}))) continue;
    const Problem p = problem_of(row, GetParam());
    Tuning tuning;
    tuning.rows[key_of(p)] = row.name;
    device.tuning = std::make_shared<Tuning>(tuning);
    auto kernels = plan_ahead(p, device);
    ASSERT_TRUE(kernels.ok()) << kernels.status().message;
    const Plan launched = with_kernels({}, std::move(kernels).value());
    const auto& plan = std::get<FwdPlan>(launched.steps.back().kernel);
    ASSERT_STREQ(plan.row, row.name) << plan.declined;
    const size_t q_rows = p.heads_q * p.q.rows, kv_rows = p.heads_q * p.kv.rows,
                 o_size = q_rows * p.head_dim_v;
    const Memory q(runtime, q_rows * p.head_dim_qk, "q"), k(runtime, kv_rows * p.head_dim_qk, "k"),
        v(runtime, kv_rows * p.head_dim_v, "v"), o(runtime, o_size, "o"),
        lse(runtime, 2 * q_rows, "lse"),
        workspace(runtime, 2 + kernel_bytes(launched) / 2, "workspace");
    Buffers buffers;
    buffers.data[kQ] = q.data(), buffers.data[kK] = k.data(), buffers.data[kV] = v.data();
    buffers.data[kO] = o.data(), buffers.data[kLse] = lse.data();
    std::vector<u16> first(o_size), now(o_size);
    for (u64 seed = 0; seed < some_of(8); ++seed) {
      runtime.set_seed(seed);
      const Status status =
          launch(launched, runtime, {}, buffers, reinterpret_cast<std::byte*>(workspace.data()));
      ASSERT_TRUE(status.ok()) << row.name << ", seed " << seed << ": " << status.message;
      runtime.download(now.data(), o.data(), o_size * sizeof(u16));
      if (seed == 0) first = now;
      ASSERT_EQ(now, first) << row.name << ", seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Masks, SimFwdSeeds,
                         testing::Values(FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW),
                         [](const auto& info) {
                           return info.param == FA3_MASK_FULL     ? "full"
                                  : info.param == FA3_MASK_CAUSAL ? "causal"
                                                                  : "window";
                         });

}  // namespace
}  // namespace fa3::sim
