// SPDX-License-Identifier: BSD-3-Clause
// programs_test.cpp — every kernel that a plan for a GPU may run has a name under which it can be
// bundled.
#include "backend/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "plan/plan.h"
#include "plan/sm90/fwd/kernels.h"
#include "plan/sm90/known.h"
#include "plan/sm90/roofline.h"

namespace fa3 {
namespace {

struct Case {
  fa3_op op;
  int64_t d_qk, d_v, rows;
  fa3_dtype dtype, mask;
  fa3_precision precision = FA3_PRECISION_DEFAULT;
  bool deterministic = false, varlen = false;
  int64_t queries = 0;  // 0: rows
};

Problem problem_of(const Case& c) {
  Problem p;
  p.op = c.op;
  p.batch = 2, p.heads_q = p.heads_kv = 4;
  p.head_dim_qk = c.d_qk, p.head_dim_v = c.d_v;
  p.q.rows = p.kv.rows = p.q.max_seqlen = p.kv.max_seqlen = c.rows;
  if (c.queries > 0) p.q.rows = p.q.max_seqlen = c.queries;
  p.kv.varlen = c.varlen;
  p.mask = FA3_MASK_CAUSAL;
  p.softmax_scale = 0.1;
  p.precision = c.precision;
  p.deterministic = c.deterministic;
  const auto give = [&](TensorId id, int64_t columns, fa3_dtype dtype) {
    p.layout[id] = {dtype, 4 * columns * c.rows, 4 * columns, columns};
  };
  for (const TensorId id : {kQ, kK}) give(id, c.d_qk, c.dtype);
  for (const TensorId id : {kV, kO}) give(id, c.d_v, c.dtype);
  give(kLse, 1, FA3_F32);
  if (c.mask != FA3_DTYPE_NONE) p.layout[kAttnMask] = {c.mask, 0, c.rows, c.rows * c.rows};
  if (c.op == FA3_OP_FORWARD) return p;
  for (const TensorId id : {kDq, kDk}) give(id, c.d_qk, c.dtype);
  for (const TensorId id : {kDv, kDout}) give(id, c.d_v, c.dtype);
  if (c.mask == FA3_DTYPE_NONE || c.mask == FA3_BOOL) return p;
  p.layout[kDattnMask] = {c.mask, 0, c.rows, c.rows * c.rows};
  p.mask_grad = {1, 4, c.rows, c.rows};
  return p;
}

std::vector<Case> few_queries() {
  std::vector<Case> all;
  for (const fa3_dtype dtype : {FA3_F16, FA3_BF16})
    for (const auto& [d_qk, d_v] : {std::pair(64, 64),
                                    {40, 64},
                                    {96, 96},
                                    {128, 64},
                                    {128, 128},
                                    {192, 128},
                                    {64, 192},
                                    {200, 200},
                                    {256, 256}})
      for (const int64_t queries : {1, 9, 17, 64, 100})
        for (const bool varlen : {false, true})
          all.push_back({FA3_OP_FORWARD, d_qk, d_v, 4000, dtype, FA3_DTYPE_NONE,
                         FA3_PRECISION_DEFAULT, false, varlen, queries});
  return all;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const fa3_dtype dtype : {FA3_F16, FA3_BF16}) {
    for (const int64_t rows : {40, 1000, 9000}) {
      for (const auto& [d_qk, d_v] :
           {std::pair(64, 64), {40, 64}, {96, 96}, {128, 64}, {128, 128}, {192, 128}, {256, 256}}) {
        Case c{FA3_OP_FORWARD, d_qk, d_v, rows, dtype, FA3_DTYPE_NONE};
        for (const fa3_precision precision :
             {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT, FA3_PRECISION_EIGHT_BIT_ACCURATE}) {
          c.precision = precision;
          all.push_back(c);
        }
        c.precision = FA3_PRECISION_DEFAULT;
        for (const fa3_dtype mask : {FA3_DTYPE_NONE, FA3_BOOL, FA3_F32, dtype}) {
          for (const bool varlen : {false, true}) {
            c.mask = mask, c.varlen = varlen;
            c.op = FA3_OP_FORWARD, c.deterministic = false;
            all.push_back(c);
            c.op = FA3_OP_BACKWARD;
            all.push_back(c);
            c.deterministic = true;
            all.push_back(c);
          }
        }
      }
    }
  }
  for (const Case& c : few_queries()) all.push_back(c);
  return all;
}

// What contexts that compile nothing run is in a bundle of all kernels: the plan does not know
// which a bundle has.
TEST(Programs, OfFewQueries_AreAmongAll) {
  const std::vector<NamedProgram> all = known_programs({});
  std::set<size_t> steps;
  for (const Case& c : few_queries()) {
    const Result<KernelPlan> plan = plan_kernels(problem_of(c), sm90::h200());
    ASSERT_TRUE(plan.ok()) << plan.status().message;
    steps.insert(plan.value().steps.size());
    for (const KernelStep& step : plan.value().steps)
      EXPECT_TRUE(std::ranges::any_of(all, [&](const NamedProgram& known) {
        return known.program.expression == step.program.expression;
      })) << step.program.expression;
  }
  EXPECT_EQ(steps, (std::set<size_t>{1, 2}));  // clusters merge without a second kernel
}

TEST(Programs, OfMerges_AreAmongAll) {
  const std::vector<NamedProgram> all = known_programs({});
  constexpr fa3_dtype kTypes[] = {FA3_F32, FA3_F16, FA3_BF16};
  for (const fa3_dtype parts : kTypes) {
    for (const fa3_dtype o : kTypes) {
      Problem p;
      p.op = FA3_OP_COMBINE;
      p.parts = 3, p.batch = 2, p.heads_q = p.heads_kv = 4, p.q.rows = 9, p.head_dim_v = 64;
      p.layout[kOParts].dtype = parts, p.layout[kMergedO].dtype = o;
      const Result<KernelPlan> plan = plan_kernels(p, sm90::h200());
      ASSERT_TRUE(plan.ok()) << plan.status().message;
      ASSERT_EQ(plan.value().steps.size(), 1u);
      EXPECT_EQ(plan.value().bytes, 0u);
      const KernelStep& step = plan.value().steps.front();
      const auto is_it = [&](const NamedProgram& known) {
        return known.program.expression == step.program.expression;
      };
      EXPECT_TRUE(std::ranges::any_of(all, is_it)) << step.program.expression;
    }
  }
}

TEST(Programs, OfDecode_HaveNamesOfTheirOwn) {
  constexpr size_t kEach = 13;  // by name: each list takes its time
  std::set<std::string> names, expressions;
  for (const NamedProgram& known : sm90::known_decode(true)) {
    names.insert(known.name);
    expressions.insert(known.program.expression);
    if (names.size() % kEach != 1) continue;
    const Result<std::vector<NamedProgram>> named = programs_named(known.name, {});
    ASSERT_TRUE(named.ok()) << named.status().message;
    EXPECT_EQ(named.value().front().program.expression, known.program.expression);
  }
  EXPECT_EQ(names.size(), expressions.size());
  EXPECT_GT(names.size(), 600u);
}

TEST(Programs, EachKernelOfAPlan_HasAName) {
  std::set<std::string> seen;
  size_t planned = 0;
  for (const Case& c : cases()) {
    const Result<KernelPlan> plan = plan_kernels(problem_of(c), sm90::h200());
    if (!plan.ok()) continue;
    ++planned;
    for (const KernelStep& step : plan.value().steps) {
      const std::string name =
          std::visit([](const auto& kernel) { return name_of(kernel); }, step.kernel);
      if (!seen.insert(name).second) continue;
      const Result<std::vector<NamedProgram>> named = programs_named(name, {});
      ASSERT_TRUE(named.ok()) << named.status().message;
      const auto is_it = [&](const NamedProgram& program) {
        return program.name == name && program.program.expression == step.program.expression;
      };
      EXPECT_TRUE(std::any_of(named.value().begin(), named.value().end(), is_it))
          << name << " is not " << step.program.expression;
    }
  }
  EXPECT_GT(planned, cases().size() * 3 / 4);
  EXPECT_GT(seen.size(), 200u);
}

}  // namespace
}  // namespace fa3
