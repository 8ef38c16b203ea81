// SPDX-License-Identifier: BSD-3-Clause
// invalid_lengths_test.cpp — cu_seqlens and seqused in device memory are read by the kernel alone
// and may hold anything: whatever they hold, the forward kernel ends and touches nothing outside of
// the tensors. (Two sequences that claim the same rows both write them: that race is theirs.)
#include <climits>
#include <random>

#include "plan/sm90/fwd_names.h"
#include "sim/fwd/configs.h"
#include "sim/fwd/kit.h"

namespace fa3::sim {
namespace {

constexpr FwdConfig kCausal = small(MaskKind::kCausal, true);
constexpr FwdConfig kWindow = [] {
  FwdConfig c = small(MaskKind::kWindow, true);
  c.consumer_wgs = 3;
  return c;
}();
constexpr FwdConfig kFull = small(MaskKind::kFull, true);
const bool added = (add_fwd<kCausal>(), add_fwd<kWindow>(), add_fwd<kFull>(), true);

verify::Config problem(const FwdConfig& c) {
  verify::Config p;
  p.dtype = FA3_BF16;
  p.heads_q = 2;
  p.alignment = 16;
  p.varlen_q = {150, 20, 100};
  p.varlen_kv = {80, 40, 70};
  p.seqused_q = {100, 20, 90};
  p.seqused_kv = {80, 10, 60};
  if (c.mask == MaskKind::kCausal) p.mask = FA3_MASK_CAUSAL;
  if (c.mask == MaskKind::kWindow) p.mask = FA3_MASK_WINDOW, p.left = 30, p.right = 10;
  return p;
}

// Only a race of two writers.
void expect_harmless(FwdRun& attention, const std::string& what) {
  try {
    attention.run();
  } catch (const Violation& violation) {
    EXPECT_EQ(violation.rule, Rule::kGlobalRace) << what << ": " << violation.what();
  }
}

class FwdInvalidLengths : public testing::TestWithParam<FwdConfig> {};

TEST_P(FwdInvalidLengths, NamedOnes_TouchNothingOutside) {
  const std::vector<std::vector<i32>> invalid = {{0, 0, 0, 0},
                                                 {270, 170, 150, 0},
                                                 {-1, -100, 20, 270},
                                                 {0, 1000, 2000, 3000},
                                                 {INT_MAX, INT_MAX, INT_MAX, INT_MAX},
                                                 {INT_MIN, INT_MIN, INT_MIN, INT_MIN},
                                                 {INT_MIN, INT_MAX, INT_MIN, INT_MAX},
                                                 {0, INT_MAX, 0, INT_MAX},
                                                 {1, 2, 3, 4},
                                                 {1 << 30, 1 << 29, -(1 << 30), 1 << 30}};
  TestRuntime runtime;
  FwdRun attention(runtime, problem(GetParam()), GetParam());
  for (const TensorId id : {kCuSeqlensQ, kCuSeqlensKv, kSequsedQ, kSequsedKv}) {
    const std::vector<i32> truth = attention.lengths(id);
    for (const std::vector<i32>& wrong : invalid) {
      attention.set_lengths(id, wrong);
      expect_harmless(attention, tensor_name(id) + (": " + testing::PrintToString(wrong)));
    }
    attention.set_lengths(id, truth);
  }
}

TEST_P(FwdInvalidLengths, RandomOnes_TouchNothingOutside) {
  TestRuntime runtime;
  FwdRun attention(runtime, problem(GetParam()), GetParam());
  std::mt19937 random(1);
  for (u64 round = 0; round < some_of(15); ++round) {
    runtime.device.options.seed = round;
    std::string what;
    for (const TensorId id : {kCuSeqlensQ, kCuSeqlensKv, kSequsedQ, kSequsedKv}) {
      std::vector<i32> wrong(4);
      for (i32& x : wrong) {
        const u32 bits = static_cast<u32>(random());
        x = static_cast<i32>(bits >> random() % 32);
        if (random() % 4 == 0) x = -x;
      }
      what += tensor_name(id) + testing::PrintToString(wrong);
      attention.set_lengths(id, wrong);
    }
    expect_harmless(attention, what);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, FwdInvalidLengths, testing::Values(kCausal, kWindow, kFull),
                         [](const auto& info) { return word(info.param.mask); });

}  // namespace
}  // namespace fa3::sim
