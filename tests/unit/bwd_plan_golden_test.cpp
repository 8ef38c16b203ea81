// SPDX-License-Identifier: BSD-3-Clause
// bwd_plan_golden_test.cpp — what the Hopper backward plans for some 90 problems, as recorded in
// tests/golden/bwd_plan.csv.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>

#include "core/dtype.h"
#include "plan/plan.h"
#include "plan/sm90/ahead.h"
#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/bwd/plan.h"
#include "tests/kit/golden_kit.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3::sm90 {
namespace {

enum class Lengths { kEqual, kVarlen, kSeqused };
enum class Terms { kNone, kSoftcap, kAlibi, kIds };

struct Case {
  int64_t d_qk = 128, d_v = 128, q = 4096, kv = 4096;
  fa3_mask mask = FA3_MASK_FULL;
  int64_t left = 0, right = 0;
  int64_t batch = 2, heads_q = 16, heads_kv = 16;
  fa3_dtype dtype = FA3_BF16;
  Terms terms = Terms::kNone;
  Lengths lengths = Lengths::kEqual;
  bool deterministic = false, dq = true, dkv = true;
  fa3_backend backend = FA3_BACKEND_CUDA;
};

Problem problem_of(const Case& c) {
  Problem p = problem(c.d_qk, c.d_v, c.q, c.kv);
  p.op = FA3_OP_BACKWARD;
  p.batch = c.batch;
  p.heads_q = c.heads_q;
  p.heads_kv = c.heads_kv;
  p.mask = c.mask;
  p.left = c.left;
  p.right = c.right;
  p.deterministic = c.deterministic;
  const Layout q = dense(c.dtype, c.q, c.heads_q, c.d_qk),
               o = dense(c.dtype, c.q, c.heads_q, c.d_v);
  const Layout k = dense(c.dtype, c.kv, c.heads_kv, c.d_qk),
               v = dense(c.dtype, c.kv, c.heads_kv, c.d_v);
  p.layout[kQ] = q, p.layout[kO] = p.layout[kDout] = o, p.layout[kK] = k, p.layout[kV] = v;
  p.layout[kLse] = {FA3_F32, c.heads_q * c.q, 1, c.q};
  if (c.dq) p.layout[kDq] = q;
  if (c.dkv) p.layout[kDk] = k, p.layout[kDv] = v;
  if (c.terms == Terms::kSoftcap) p.softcap = 30;
  if (c.terms == Terms::kAlibi) p.layout[kAlibiSlopes] = {FA3_F32, c.heads_q, 0, 1};
  if (c.terms == Terms::kIds) {
    p.layout[kSequenceIdsQ] = {FA3_I32, c.q, 1, 0};
    p.layout[kSequenceIdsKv] = {FA3_I32, c.kv, 1, 0};
  }
  p.q.seqused = p.kv.seqused = c.lengths == Lengths::kSeqused;
  if (c.lengths == Lengths::kVarlen) {
    p.q.varlen = p.kv.varlen = true;
    p.q.rows *= c.batch;
    p.kv.rows *= c.batch;
    for (Layout& layout : p.layout) layout.batch = 0;
  }
  return p;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int64_t d : {8, 64, 72, 128, 136, 256}) {
    for (const int64_t q : {1, 512, 4097})
      for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL})
        all.push_back({.d_qk = d, .d_v = d, .q = q, .kv = q, .mask = mask});
    for (const Terms terms : {Terms::kSoftcap, Terms::kAlibi, Terms::kIds})
      all.push_back({.d_qk = d, .d_v = d, .terms = terms});
    all.push_back({.d_qk = d, .d_v = d, .deterministic = true});
    all.push_back({.d_qk = d, .d_v = d, .heads_kv = 2, .dtype = FA3_F16});
  }
  for (const auto& [d_qk, d_v] : {std::pair<int64_t, int64_t>{64, 128}, {128, 64}, {192, 128}})
    all.push_back({.d_qk = d_qk, .d_v = d_v});
  all.push_back({.mask = FA3_MASK_WINDOW, .left = 128, .right = 0});
  for (const Lengths lengths : {Lengths::kVarlen, Lengths::kSeqused})
    for (const bool deterministic : {false, true})
      all.push_back({.batch = 8, .lengths = lengths, .deterministic = deterministic});
  all.push_back({.dq = false});
  all.push_back({.deterministic = true, .dq = false});
  all.push_back({.dkv = false});
  all.push_back({.q = 0});
  all.push_back({.kv = 0});
  all.push_back({.q = 131072, .kv = 131072, .batch = 1});
  for (const int64_t d : {40, 64, 128, 256}) {
    all.push_back({.d_qk = d, .d_v = d, .q = 300, .backend = FA3_BACKEND_SIM});
    all.push_back({.d_qk = d, .d_v = d, .q = 300, .dtype = FA3_F16, .backend = FA3_BACKEND_SIM});
  }
  all.push_back({.d_qk = 12});
  all.push_back({.d_qk = 264, .d_v = 264});
  all.push_back({.dtype = FA3_F32});
  all.push_back({.batch = 65535});
  for (const Lengths lengths : {Lengths::kEqual, Lengths::kVarlen})
    all.push_back({.q = 4, .kv = 4, .batch = 200000, .lengths = lengths});
  return all;
}

constexpr const char* kHeader =
    "backend,dtype,batch,heads_q,heads_kv,seqlen_q,seqlen_kv,head_dim_qk,head_dim_v,mask,terms,"
    "lengths,deterministic,dq,dkv,row,tile_q,tile_kv,ragged,smem_bytes,workspace_bytes,kernels,"
    "refused";

std::string text_of(const Case& c) {
  const char* const lengths[] = {"equal", "varlen", "seqused"};
  const char* const terms[] = {"", "softcap", "alibi", "ids"};
  const std::string mask = c.mask == FA3_MASK_FULL     ? "full"
                           : c.mask == FA3_MASK_CAUSAL ? "causal"
                                                       : fmt::format("{}:{}", c.left, c.right);
  const auto yes = [](bool b) { return b ? "yes" : "no"; };
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                     c.backend == FA3_BACKEND_SIM ? "sim" : "cuda", dtype_name(c.dtype), c.batch,
                     c.heads_q, c.heads_kv, c.q, c.kv, c.d_qk, c.d_v, mask,
                     terms[static_cast<int>(c.terms)], lengths[static_cast<int>(c.lengths)],
                     yes(c.deterministic), yes(c.dq), yes(c.dkv));
}

std::string line_of(const Case& c) {
  const auto make = c.backend == FA3_BACKEND_SIM ? &ahead_bwd_plans : &make_bwd_plans;
  const Result<std::vector<BwdPlan>> plans = make(problem_of(c), device());
  if (!plans.ok()) {
    const std::string& why = plans.status().message;
    return text_of(c) + std::string(7, ',') + "," + why.substr(0, why.find(','));
  }
  std::string kernels;
  const BwdPlan* main = nullptr;
  for (const BwdPlan& plan : plans.value()) {
    kernels += fmt::format("{}{} {}x{}x{}", kernels.empty() ? "" : "; ", word(plan.pass),
                           plan.grid[0], plan.grid[1], plan.grid[2]);
    main = plan.pass == BwdPass::kMain ? &plan : main;
  }
  const std::vector<Kernel> all(plans.value().begin(), plans.value().end());
  const size_t workspace = kernel_bytes(plan_with(problem_of(c), all));
  const BwdConfig& config = main->config;
  return text_of(c) + fmt::format(",{},{},{},{},{},{},{},", main->row, config.tile_q,
                                  config.tile_kv(), config.ragged ? "yes" : "no",
                                  config.smem_bytes(), workspace, kernels);
}

TEST(BwdPlanGolden, Choices_AreThoseOfTheFile) {
  kit::Lines now;
  for (const Case& c : cases()) now.push_back(line_of(c));
  kit::expect_golden("bwd_plan.csv", kHeader, now);
}

// Every row is chosen somewhere, and no problem is there twice.
TEST(BwdPlanGolden, Cases_CoverTheTable) {
  std::set<std::string> rows, problems;
  for (const Case& c : cases()) {
    EXPECT_TRUE(problems.insert(text_of(c)).second) << text_of(c);
    const Result<std::vector<BwdPlan>> plans = make_bwd_plans(problem_of(c), device());
    if (plans.ok() && !plans.value().empty()) rows.insert(plans.value().front().row);
  }
  EXPECT_EQ(rows.size(), std::size(kBwdRows));
}

}  // namespace
}  // namespace fa3::sm90
