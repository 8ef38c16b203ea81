// SPDX-License-Identifier: BSD-3-Clause
// mask_programs_test.cpp — kernels with attn_mask stay in registers, and ptxas leaves the
// reductions of which tiles they visit unconditional: it has put them under the predicate of
// another condition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/bwd/plan.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/fwd/variants.h"
#include "plan/sm90/mask/bits_plan.h"
#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"
#include "tests/kit/thorough.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;
using testing::Not;

// Compiles what is due; of each, how many accesses to local memory it has.
std::vector<size_t> compile(const std::string& header, const std::vector<std::string>& all_of) {
  std::vector<std::string> expressions;
  for (size_t i = 0; i < all_of.size(); ++i)
    if (kit::due(i, 3)) expressions.push_back(all_of[i]);
  const kit::Translation all = kit::translate("#include \"" + header + "\"\n", expressions);
  EXPECT_THAT(all.log, Not(HasSubstr("(C75")));
  EXPECT_THAT(all.log, Not(HasSubstr("warning")));
  std::vector<size_t> local;
  for (size_t i = 0; i < expressions.size(); ++i) {
    const kit::Code code(all.cubin, all.symbols[i]);
    for (const kit::Instruction& instruction : code.instructions())
      EXPECT_FALSE(instruction.opcode() == kit::kRedux && instruction.is_predicated())
          << expressions[i];
    local.push_back(code.count(kit::kLoadLocal) + code.count(kit::kStoreLocal));
  }
  return local;
}

FwdConfig forward(const char* name, const FwdFunctors& functors, ScoreKind score) {
  const FwdConfig config = config_of(
      *row_named(name), {.mask = MaskKind::kCausal, .score = score, .functors = functors});
  EXPECT_EQ(why_illegal(config), nullptr) << name;
  return config;
}

TEST(MaskPrograms, OfTheForward_StayInRegisters) {
  const FwdFunctors hides{false, false, MaskTensor::kBool}, adds{false, false, MaskTensor::kF32},
      adds_16{false, false, MaskTensor::k16};
  const std::vector<std::string> all = {
      fwd_expression(forward("d128", hides, ScoreKind::kPlain), hides),
      fwd_expression(forward("d64", adds, ScoreKind::kScaled), adds),
      fwd_expression(forward("d128", adds, ScoreKind::kScaled), adds),
      fwd_expression(forward("d128", adds_16, ScoreKind::kScaled), adds_16),
      fwd_expression(forward("d256", adds, ScoreKind::kScaled), adds)};
  EXPECT_THAT(compile("device/sm90/fwd/fwd.cuh", all), testing::Each(0u));
}

TEST(MaskPrograms, OfTheBackward_StayInRegisters) {
  std::vector<std::string> all;
  std::string header;
  for (const BwdRow& row : kBwdRows) {
    if (row.config.staggered()) continue;
    // Alone, and a mask that only hides beside one other term.
    for (const auto& [type, softcap, functors] :
         {std::tuple(MaskTensor::kBool, true, false), std::tuple(MaskTensor::kBool, false, true),
          std::tuple(MaskTensor::kF32, false, false)}) {
      BwdPlan plan;
      plan.config = row.config;
      plan.config.attn_mask = type;
      plan.config.softcap = softcap;
      plan.config.functors = functors;
      ASSERT_EQ(why_illegal(plan.config), nullptr);
      all.push_back(program_of(plan).expression);
      header = program_of(plan).header;
    }
  }
  EXPECT_THAT(compile(header, all), testing::Each(0u));
}

TEST(MaskPrograms, OfGradients_StayInRegisters) {
  std::vector<std::string> all;
  std::string header;
  for (const auto& [head_dim, type, terms] :
       {std::tuple(64, MaskTensor::kF32, false), std::tuple(128, MaskTensor::k16, false),
        std::tuple(128, MaskTensor::kF32, false), std::tuple(256, MaskTensor::kF32, true)}) {
    BwdPlan plan;
    plan.pass = BwdPass::kMaskGradient;
    plan.config.head_dim_qk = plan.config.head_dim_v = head_dim;
    plan.config.attn_mask = type;
    plan.config.softcap = plan.config.functors = terms;
    plan.config.ragged = type == MaskTensor::k16;
    plan.gradient = gradient_of(plan.config);
    all.push_back(program_of(plan).expression);
    header = program_of(plan).header;
  }
  EXPECT_THAT(compile(header, all), testing::Each(0u));
}

TEST(MaskPrograms, OfBits_StayInRegisters) {
  const std::vector<std::string> all = {mask_bits_expression({MaskTensor::kBool, false, 128, 128}),
                                        mask_bits_expression({MaskTensor::kF32, false, 128, 96}),
                                        mask_bits_expression({MaskTensor::k16, true, 64, 32}),
                                        mask_bits_expression({MaskTensor::kBool, false, 80, 128})};
  EXPECT_THAT(compile("device/sm90/mask/mask_bits.cuh", all), testing::Each(0u));
}

TEST(MaskPrograms, OfImages_StayInRegisters) {
  const std::vector<std::string> all = {mask_image_expression({MaskTensor::kF32, false}),
                                        mask_image_expression({MaskTensor::k16, true}),
                                        mask_image_expression({MaskTensor::k16, false})};
  EXPECT_THAT(compile("device/sm90/mask/mask_image.cuh", all), testing::Each(0u));
}

}  // namespace
}  // namespace fa3::sm90
