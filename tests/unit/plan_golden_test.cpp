// SPDX-License-Identifier: BSD-3-Clause
// plan_golden_test.cpp — what the Hopper forward plans for some 200 problems, as recorded in
// tests/golden/plan.csv: a change of a heuristic is a diff of that file.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "plan/sm90/ahead.h"
#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/names.h"
#include "plan/sm90/fwd/plan.h"
#include "tests/kit/golden_kit.h"
#include "tests/unit/fwd_plan_kit.h"

namespace fa3::sm90 {
namespace {

using kit::Lines;

enum class Lengths { kEqual, kVarlen, kSeqused };

struct Case {
  int64_t d_qk = 128, d_v = 128, q = 4096, kv = 4096;
  fa3_mask mask = FA3_MASK_FULL;
  int64_t left = 0, right = 0;
  int64_t batch = 2, heads_q = 16, heads_kv = 16;
  fa3_dtype dtype = FA3_BF16;
  fa3_dtype dtype_v = FA3_DTYPE_NONE;  // none: as q
  double softcap = 0, scale = 0.1;
  Lengths lengths = Lengths::kEqual;
  fa3_backend backend = FA3_BACKEND_CUDA;
  int sms = 132;
};

Problem problem_of(const Case& c) {
  Problem p = problem(c.d_qk, c.d_v, c.q, c.kv);
  p.batch = c.batch;
  p.heads_q = c.heads_q;
  p.heads_kv = c.heads_kv;
  p.mask = c.mask;
  p.left = c.left;
  p.right = c.right;
  p.softcap = c.softcap;
  p.softmax_scale = c.scale;
  p.layout[kQ] = dense(c.dtype, c.q, c.heads_q, c.d_qk);
  p.layout[kK] = dense(c.dtype, c.kv, c.heads_kv, c.d_qk);
  const fa3_dtype dtype_v = c.dtype_v != FA3_DTYPE_NONE ? c.dtype_v : c.dtype;
  p.layout[kV] = dense(dtype_v, c.kv, c.heads_kv, c.d_v);
  p.layout[kO] = dense(is_8_bit(c.dtype) ? FA3_BF16 : c.dtype, c.q, c.heads_q, c.d_v);
  p.q.seqused = p.kv.seqused = c.lengths == Lengths::kSeqused;
  if (c.lengths == Lengths::kVarlen) {
    p.q.varlen = p.kv.varlen = true;
    p.q.rows *= c.batch;
    p.kv.rows *= c.batch;
    for (const TensorId id : {kQ, kK, kV, kO}) p.layout[id].batch = 0;
  }
  return p;
}

void add_head_dims(std::vector<Case>& all) {
  for (const int64_t d : {8, 32, 64, 72, 96, 104, 128, 136, 192, 200, 256}) {
    for (const int64_t q : {1, 64, 65, 512, 4096}) {
      for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL})
        all.push_back({.d_qk = d, .d_v = d, .q = q, .mask = mask});
    }
  }
  // With enough Q tiles for three consumers.
  for (const int64_t d : {64, 96, 128, 256}) {
    for (const int64_t q : {1024, 1025}) {
      for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL})
        all.push_back({.d_qk = d, .d_v = d, .q = q, .kv = q, .mask = mask, .batch = 21});
    }
  }
  all.push_back({.d_qk = 192, .d_v = 128, .mask = FA3_MASK_CAUSAL});
  const std::pair<int64_t, int64_t> unequal[] = {{64, 128}, {128, 64}, {192, 128}, {128, 192},
                                                 {64, 256}, {256, 64}, {40, 248},  {16, 8}};
  for (const auto& [d_qk, d_v] : unequal) {
    all.push_back({.d_qk = d_qk, .d_v = d_v});
    all.push_back({.d_qk = d_qk, .d_v = d_v, .q = 64, .mask = FA3_MASK_CAUSAL});
  }
}

void add_masks_and_scores(std::vector<Case>& all) {
  const std::pair<int64_t, int64_t> windows[] = {{1024, 0}, {0, 0},   {-1, 16},  {16, -1},
                                                 {-1, -1},  {-1, 0},  {4095, 0}, {128, 128},
                                                 {0, 4095}, {4094, 1}};
  for (const auto& [left, right] : windows) {
    all.push_back({.mask = FA3_MASK_WINDOW, .left = left, .right = right});
    all.push_back({.d_qk = 64, .d_v = 64, .mask = FA3_MASK_WINDOW, .left = left, .right = right});
  }
  for (const int64_t d : {64, 128, 256}) {
    all.push_back({.d_qk = d, .d_v = d, .dtype = FA3_F16});
    all.push_back({.d_qk = d, .d_v = d, .mask = FA3_MASK_CAUSAL, .softcap = 30});
    all.push_back({.d_qk = d, .d_v = d, .scale = -0.1});
  }
}

void add_batches(std::vector<Case>& all) {
  // Grouped heads, decode, prefill of a long prompt behind another.
  for (const int64_t heads_kv : {1, 2, 8}) {
    all.push_back({.q = 1, .kv = 65536, .batch = 64, .heads_q = 32, .heads_kv = heads_kv});
    all.push_back({.mask = FA3_MASK_CAUSAL, .heads_q = 32, .heads_kv = heads_kv});
    all.push_back({.q = 512, .kv = 32768, .mask = FA3_MASK_CAUSAL, .heads_kv = heads_kv});
  }
  for (const Lengths lengths : {Lengths::kVarlen, Lengths::kSeqused}) {
    for (const int64_t d : {64, 128, 256}) {
      all.push_back({.d_qk = d, .d_v = d, .batch = 8, .lengths = lengths});
      all.push_back(
          {.d_qk = d, .d_v = d, .q = 1, .mask = FA3_MASK_CAUSAL, .batch = 8, .lengths = lengths});
    }
  }
  for (const int64_t seqlen : {1, 127, 128, 129, 131072}) {
    all.push_back({.q = seqlen, .kv = seqlen, .batch = 1, .heads_q = 1, .heads_kv = 1});
    all.push_back({.q = seqlen, .kv = seqlen, .mask = FA3_MASK_CAUSAL, .batch = 1});
  }
  for (const int sms : {1, 78}) {
    all.push_back({.sms = sms});
    all.push_back({.mask = FA3_MASK_CAUSAL, .sms = sms});
    all.push_back({.q = 64, .batch = 1, .sms = sms});
  }
}

void add_simulated(std::vector<Case>& all) {
  for (const int64_t d : {40, 64, 80, 128, 256}) {
    Case c{.d_qk = d, .d_v = d, .q = 300, .backend = FA3_BACKEND_SIM, .sms = 4};
    all.push_back(c);
    c.dtype = FA3_F16;
    all.push_back(c);
    c.mask = FA3_MASK_CAUSAL;
    all.push_back(c);
  }
}

void add_8_bits(std::vector<Case>& all) {
  const std::pair<fa3_dtype, fa3_dtype> types[] = {
      {FA3_F8_E4M3, FA3_F8_E4M3}, {FA3_I8, FA3_F8_E4M3}, {FA3_I8, FA3_BF16}};
  for (const auto& [dtype, dtype_v] : types) {
    for (const int64_t d : {16, 64, 96, 128, 192, 256}) {
      for (const int64_t q : {100, 2000, 8192}) {
        for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
          Case c{.d_qk = d, .d_v = d, .q = q, .kv = 1024, .mask = mask};
          c.dtype = dtype, c.dtype_v = dtype_v;
          all.push_back(c);
          c.kv = 16384;  // sums that are flushed
          if (q == 8192 && dtype_v == FA3_F8_E4M3) all.push_back(c);
        }
      }
    }
    Case few{.d_qk = 64, .d_v = 64, .q = 4200, .kv = 1024, .batch = 1, .heads_q = 1, .heads_kv = 1};
    few.dtype = dtype, few.dtype_v = dtype_v;
    all.push_back(few);
    few.kv = 16384;
    all.push_back(few);
    few.d_qk = few.d_v = 128;
    all.push_back(few);
    for (const fa3_backend backend : {FA3_BACKEND_CUDA, FA3_BACKEND_SIM}) {
      Case softcap{.q = 300, .kv = 1024, .dtype = dtype, .dtype_v = dtype_v, .softcap = 30};
      softcap.backend = backend;
      all.push_back(softcap);
    }
  }
}

void add_refusals(std::vector<Case>& all) {
  all.push_back({.d_qk = 12});
  all.push_back({.d_v = 260});
  all.push_back({.d_qk = 264, .d_v = 264});
  all.push_back({.dtype = FA3_F32});
  all.push_back({.q = int64_t{1} << 31});
  all.push_back({.kv = int64_t{1} << 30, .batch = 1});
  all.push_back({.d_qk = 8, .d_v = 8, .q = int64_t{1} << 29, .batch = 64, .heads_q = 64});
}

std::vector<Case> cases() {
  std::vector<Case> all;
  add_head_dims(all);
  add_masks_and_scores(all);
  add_batches(all);
  add_simulated(all);
  add_8_bits(all);
  add_refusals(all);
  return all;
}

// ---- As lines -----------------------------------------------------------------------------------

constexpr const char* kHeader =
    "backend,sms,dtype,batch,heads_q,heads_kv,seqlen_q,seqlen_kv,head_dim_qk,head_dim_v,mask,"
    "lengths,softcap,scale,row,tile_q,tile_kv,kernel_dim_qk,kernel_dim_v,kernel_mask,score,ragged,"
    "stages,q_stages,consumers,counter,grid,q_tiles,waves,section,longest_first,smem_bytes,"
    "refused";

std::string text_of(const Case& c) {
  const char* const lengths[] = {"equal", "varlen", "seqused"};
  const std::string mask = c.mask == FA3_MASK_FULL     ? "full"
                           : c.mask == FA3_MASK_CAUSAL ? "causal"
                                                       : fmt::format("{}:{}", c.left, c.right);
  const std::string v = c.dtype_v == FA3_DTYPE_NONE || c.dtype_v == c.dtype
                            ? ""
                            : fmt::format("+{}", dtype_name(c.dtype_v));
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                     c.backend == FA3_BACKEND_SIM ? "sim" : "cuda", c.sms, dtype_name(c.dtype) + v,
                     c.batch, c.heads_q, c.heads_kv, c.q, c.kv, c.d_qk, c.d_v, mask,
                     lengths[static_cast<int>(c.lengths)], c.softcap, c.scale);
}

std::string text_of(const FwdPlan& plan) {
  const char* const scores[] = {"plain", "softcap", "scaled"};
  const FwdConfig& c = plan.config;
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.2f},{},{},{},", plan.row,
                     c.tile.q(), c.tile.kv, c.tile.head_dim_qk, c.tile.head_dim_v,
                     word(c.mask.kind), scores[static_cast<int>(c.scores.kind)],
                     c.load.ragged ? "yes" : "no", c.tile.stages, c.tile.q_stages,
                     c.tile.consumer_wgs, plan.counter ? "yes" : "no", plan.grid, plan.tiles,
                     static_cast<double>(plan.tiles) / plan.grid, plan.order.head_group,
                     plan.order.longest_first ? "yes" : "no", c.smem_bytes());
}

std::string line_of(const Case& c) {
  DeviceInfo on = device();
  on.multiprocessors = c.sms;
  const auto make = c.backend == FA3_BACKEND_SIM ? &ahead_fwd_plan : &make_fwd_plan;
  const Result<FwdPlan> plan = make(problem_of(c), on);
  if (plan.ok()) return text_of(c) + "," + text_of(plan.value());
  const std::string& why = plan.status().message;
  return text_of(c) + std::string(18, ',') + "," + why.substr(0, why.find(','));
}

TEST(PlanGolden, Choices_AreThoseOfTheFile) {
  Lines now;
  for (const Case& c : cases()) now.push_back(line_of(c));
  kit::expect_golden("plan.csv", kHeader, now);
}

// Every row is chosen somewhere, and no problem is there twice.
TEST(PlanGolden, Cases_CoverTheTable) {
  std::set<std::string> rows, problems;
  for (const Case& c : cases()) {
    EXPECT_TRUE(problems.insert(text_of(c)).second) << text_of(c);
    const Result<FwdPlan> plan = make_fwd_plan(problem_of(c), device());
    if (plan.ok()) rows.insert(plan.value().row);
  }
  // Scales of blocks alone, of which lines say nothing.
  Problem blocks = problem_of({.d_qk = 256, .d_v = 256, .dtype = FA3_F8_E4M3});
  blocks.scale_block[kV].rows = 64;
  const Result<FwdPlan> plan = make_fwd_plan(blocks, device());
  ASSERT_TRUE(plan.ok()) << plan.status().message;
  rows.insert(plan.value().row);
  EXPECT_EQ(rows.size(), std::size(kFwdRows));
}

}  // namespace
}  // namespace fa3::sm90
