// SPDX-License-Identifier: BSD-3-Clause
// gather_faults_test.cpp — cp.async as a source of wgmma: right on every seed; its waits, fences
// and barriers matter.
#include "sim/faults.h"
#include "sim/kernels/gather.h"

namespace fa3::sim {
namespace {

using namespace faulty;

struct Gather {
  using Args = GatherArgs;

  Device device;
  Array<u16> rows{device, "rows", 128 * 64, true};
  Array<u32> table{device, "table", 64, true};
  Array<float> bias{device, "bias", 64, true}, c{device, "c", 64 * 64};
  std::vector<float> expected = std::vector<float>(64 * 64);
  Args args{};

  Gather() {
    const auto at = [](u32 row, u32 k) { return static_cast<float>((row * 7 + k * 3) % 9) - 4; };
    for (u32 i = 0; i < 128 * 64; ++i) rows[i] = from_double<Bf16>(at(i / 64, i % 64)).bits;
    for (u32 i = 0; i < 64; ++i) {
      table[i] = i * 37 % 64;
      bias[i] = static_cast<float>(i);
    }
    for (u32 m = 0; m < 64; ++m)
      for (u32 n = 0; n < 64; ++n) {
        expected[m * 64 + n] = bias[n];
        for (u32 k = 0; k < 64; ++k) expected[m * 64 + n] += at(table[m], k) * at(64 + n, k);
      }
    args = {rows.data(), table.data(), bias.data(), c.data()};
  }
  void clear() { std::memset(c.data(), 0xFF, c.size() * sizeof(float)); }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    return violation_of(device, kernel, {{1, 1, 1}, 128, sizeof(GatherSmem)}, args);
  }
  size_t wrong() {
    size_t count = 0;
    for (size_t i = 0; i < expected.size(); ++i) count += !(c[i] == expected[i]);
    return count;
  }
};

class GatherFaults : public testing::TestWithParam<Fault<Gather>> {};
TEST_P(GatherFaults, IsReported) { expect_fault(GetParam()); }

template <GatherFault kFault>
constexpr auto kKernel = &gather_gemm<kFault>;
using F = GatherFault;
constexpr Shows kEvery = Shows::kEverySeed;

const Report kInFlight{Rule::kRace, "a", "wgmma reads a while a cp_async into it is in flight",
                       "cp_async_wait() by the copying thread"};
const Report kNotFenced{Rule::kProxyFence, "a", "after cp_async wrote it",
                        "by the thread of cp_async"};
const Report kVectorInFlight{Rule::kRace, "bias", "ld_shared reads bias", "cp_async_wait()"};

const Fault<Gather> kFaults[] = {
    // The bias's mbarrier completes the copies of 16 threads all the same, but after their fences.
    {"MissingWait", kKernel<F::kMissingWait>, kEvery, {kInFlight, kNotFenced}},
    {"WaitOfOneGroup", kKernel<F::kWaitOfOneGroup>, kEvery, {kInFlight, kNotFenced}},
    {"FenceBeforeWait", kKernel<F::kFenceBeforeWait>, kEvery, {kNotFenced}},
    {"MissingFence", kKernel<F::kMissingFence>, kEvery, {kNotFenced}},
    {"MissingBarrier",
     kKernel<F::kMissingBarrier>,
     kEvery,
     {{Rule::kRace, "a", "after the write by cp_async",
       "a barrier between the write and the wgmma"}}},
    {"MissingVectorWait", kKernel<F::kMissingVectorWait>, Shows::kWithin64, {kVectorInFlight}},
    // The barrier's phase is over with the first of 16 arrivals.
    {"VectorCountOne",
     kKernel<F::kVectorCountOne>,
     Shows::kWithin64,
     {kVectorInFlight,
      {Rule::kMbarrier, "bias_full", "two phases late", "must not complete a phase"}}},
    {"Misaligned",
     kKernel<F::kMisaligned>,
     kEvery,
     {{Rule::kAlignment, "", "cp_async of 16 bytes", "from a multiple of that size"}}},
    {"RowBeyondTable",
     kKernel<F::kRowBeyondTable>,
     kEvery,
     {{Rule::kOutOfBounds, "rows", "outside of every tensor (the nearest buffer below is rows",
       "indices clamped"}}},
};
INSTANTIATE_TEST_SUITE_P(Sim, GatherFaults, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<Gather>>>);

TEST(SimGather, Correct_EverySeed) { expect_correct<Gather>(kKernel<F::kNone>); }

}  // namespace
}  // namespace fa3::sim
