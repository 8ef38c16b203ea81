// SPDX-License-Identifier: BSD-3-Clause
// bwd_programs_test.cpp — the backward kernels compile for sm_90a as they are meant to: in
// registers, without advisories, descriptors in uniform registers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/bwd/plan.h"
#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"
#include "tests/kit/thorough.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;
using testing::Not;

class BwdPrograms : public testing::TestWithParam<size_t> {
 protected:
  static const BwdConfig& row() { return kBwdRows[GetParam()].config; }
};

TEST_P(BwdPrograms, CompileAsMeant) {
  for (const BwdPass pass :
       {BwdPass::kBound, BwdPass::kDelta, BwdPass::kMain, BwdPass::kDq, BwdPass::kSinks}) {
    std::vector<std::string> expressions;
    std::string header;
    for (const auto& [dtype, deterministic, terms, zeros] :
         {std::tuple(MmaType::kBf16, false, false, false),
          std::tuple(MmaType::kBf16, true, false, false),
          std::tuple(MmaType::kF16, false, false, false),
          std::tuple(MmaType::kBf16, false, true, false),
          std::tuple(MmaType::kF16, true, true, false),
          std::tuple(MmaType::kBf16, false, false, true),
          std::tuple(MmaType::kBf16, true, false, true)}) {
      if ((terms && row().staggered()) || (pass == BwdPass::kBound && !deterministic)) continue;
      if (zeros && kBwdRows[GetParam()].zero_tiles == 0) continue;
      BwdPlan plan;
      plan.pass = pass;
      plan.config = row();
      plan.config.dtype = dtype;
      plan.config.ragged = dtype == MmaType::kF16;
      plan.config.deterministic = deterministic;
      plan.config.softcap = plan.config.functors = terms;
      plan.config.sets_zeros = zeros;
      const Program program = program_of(plan);
      header = program.header;
      if (std::find(expressions.begin(), expressions.end(), program.expression) ==
          expressions.end())
        expressions.push_back(program.expression);
    }
    for (size_t i = expressions.size(); i-- > 0;)
      if (!kit::due(i, 3)) expressions.erase(expressions.begin() + static_cast<ptrdiff_t>(i));
    if (expressions.empty()) continue;
    const kit::Translation all = kit::translate("#include \"" + header + "\"\n", expressions);
    EXPECT_THAT(all.log, Not(HasSubstr("(C75")));
    EXPECT_THAT(all.log, Not(HasSubstr("warning")));
    for (size_t i = 0; i < expressions.size(); ++i) {
      SCOPED_TRACE(expressions[i]);
      const kit::Code code(all.cubin, all.symbols[i]);
      EXPECT_EQ(code.count(kit::kLoadLocal) + code.count(kit::kStoreLocal), 0u);
      if (pass != BwdPass::kMain) continue;
      // dV and dK, Sᵀ and dPᵀ with LSE and δ, of which a softcap leaves one, and dQ of a step;
      // split, a loop for each consumer.
      const BwdConfig& c = row();
      const bool softcap = expressions[i].find(".softcap = true") != std::string::npos;
      const auto wgmmas =
          static_cast<size_t>(c.head_dim_qk / 16 + c.head_dim_v / 16 + 2 * c.tile_q / 16 +
                              c.cluster_kv() / 16 + (softcap ? 1 : 2));
      ASSERT_EQ(code.inner_wgmma_loops().size(), c.split() ? 2u : 1u);
      size_t found = 0;
      for (const kit::Loop& loop : code.inner_wgmma_loops())
        for (const kit::Instruction& instruction : code.in(loop)) found += instruction.is_wgmma();
      EXPECT_EQ(found, wgmmas);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Rows, BwdPrograms, testing::Range(size_t{0}, std::size(kBwdRows)),
                         [](const auto& row) {
                           std::string name = kBwdRows[row.param].name;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace fa3::sm90
