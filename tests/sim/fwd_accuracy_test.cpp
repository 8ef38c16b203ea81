// SPDX-License-Identifier: BSD-3-Clause
// fwd_accuracy_test.cpp — the FlashAttention-3 paper's error experiment on the simulated forward
// kernel, a few heads of it; `make accuracy` runs all of it.
#include "tests/kit/context.h"
#include "tools/verify/outliers.h"

namespace fa3 {
namespace verify {

void PrintTo(const OutlierConfig& c, std::ostream* out) {
  *out << c.heads << " heads, " << c.seqlen_q << " x " << c.seqlen_kv << ", d " << c.head_dim;
}

}  // namespace verify
namespace {

using verify::Errors;
using verify::kMostRmse;
using verify::OutlierConfig;

kit::Context open(fa3_backend backend) {
  fa3_context_options options = kit::default_options();
  options.backend = backend;
  return kit::make_context(options);
}

class SimFwdAccuracy : public testing::TestWithParam<OutlierConfig> {};

TEST_P(SimFwdAccuracy, F16_NotAboveUnfused) {
  const kit::Context reference = open(FA3_BACKEND_REFERENCE), sim = open(FA3_BACKEND_SIM);
  const auto errors = verify::outlier_errors(
      GetParam(), reference.get(),
      {verify::fa3_method("sim", FA3_F16, sim.get()), verify::unfused_method(FA3_F16)});
  const Errors &kernel = errors[0], &unfused = errors[1];
  EXPECT_LE(kernel.rounded.rmse(), unfused.rounded.rmse());
  EXPECT_LE(kernel.drawn.rmse(), unfused.drawn.rmse());
  // The paper's figure is of many heads: of a single one, the outliers that it happened to draw
  // decide.
  if (GetParam().head_dim == 128 && GetParam().heads >= 4) {
    EXPECT_LE(kernel.drawn.rmse(), kMostRmse);
  }
}

OutlierConfig few(int64_t head_dim, int64_t seqlen) {
  return {.heads = kit::reduction() > 1 ? 1 : 4, .seqlen_kv = seqlen, .head_dim = head_dim};
}

INSTANTIATE_TEST_SUITE_P(Shapes, SimFwdAccuracy,
                         testing::Values(few(64, 512), few(64, 2048), few(128, 512),
                                         few(128, 2048)),
                         [](const auto& info) {
                           return "d" + std::to_string(info.param.head_dim) + "_s" +
                                  std::to_string(info.param.seqlen_kv);
                         });

// The bound is one that a kernel of three bits less breaks.
TEST(SimFwdAccuracyBound, Bf16_IsAbove) {
  const kit::Context reference = open(FA3_BACKEND_REFERENCE), sim = open(FA3_BACKEND_SIM);
  const auto errors = verify::outlier_errors(few(128, 512), reference.get(),
                                             {verify::fa3_method("sim", FA3_BF16, sim.get())});
  EXPECT_GT(errors[0].drawn.rmse(), kMostRmse);
}

}  // namespace
}  // namespace fa3
