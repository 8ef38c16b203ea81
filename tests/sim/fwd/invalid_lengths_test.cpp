// SPDX-License-Identifier: BSD-3-Clause
// invalid_lengths_test.cpp — the forward kernel on lengths that hold anything.
#include "sim/invalid_lengths.h"

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
  verify::Config p = with_lengths();
  if (c.mask == MaskKind::kCausal) p.mask = FA3_MASK_CAUSAL;
  if (c.mask == MaskKind::kWindow) p.mask = FA3_MASK_WINDOW, p.left = 30, p.right = 10;
  return p;
}

class FwdInvalidLengths : public testing::TestWithParam<FwdConfig> {
 protected:
  TestRuntime runtime_;
  FwdRun attention_{runtime_, problem(GetParam()), GetParam()};
  InvalidLengths lengths_{runtime_, attention_};
};

TEST_P(FwdInvalidLengths, NamedOnes_TouchNothingOutside) { lengths_.expect_named_ones_harmless(); }
TEST_P(FwdInvalidLengths, RandomOnes_TouchNothingOutside) {
  lengths_.expect_random_ones_harmless(some_of(15));
}

INSTANTIATE_TEST_SUITE_P(Kernels, FwdInvalidLengths, testing::Values(kCausal, kWindow, kFull),
                         [](const auto& info) { return word(info.param.mask); });

}  // namespace
}  // namespace fa3::sim
