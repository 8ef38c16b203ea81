// SPDX-License-Identifier: BSD-3-Clause
// mutations_test.cpp — every wait, arrival, fence and barrier of the backward kernels is left out
// in turn, in the simulator.
#include "sim/mutations.h"

#include <cstring>
#include <vector>

#include "sim/bwd/kit.h"

namespace fa3::sim {
namespace {

struct Mutated {
  const char* name;
  BwdConfig config;
};
void PrintTo(const Mutated& m, std::ostream* out) { *out << m.name; }

constexpr BwdConfig deterministic(BwdConfig c) {
  c.deterministic = true;
  return c;
}
constexpr BwdConfig kByRows = bwd_config("d64");  // a consumer's part of dQ
constexpr BwdConfig kHalfTile = [] {
  BwdConfig c = deterministic(bwd_config("d128"));
  c.ragged = c.functors = true;
  return c;
}();

constexpr BwdConfig kSplit = deterministic(bwd_config("d256"));
static_assert(kSplit.split());
constexpr BwdConfig kZeros = [] {
  BwdConfig c = deterministic(bwd_config("d64"));
  c.sets_zeros = true;
  return c;
}();

const bool added =
    (add_bwd<kSplit>(), add_bwd<kByRows>(), add_bwd<kHalfTile>(), add_bwd<kZeros>(), true);

// One KV tile a head, or one for each CTA of a cluster, so that no two add to the same dQ, whose
// bits would depend on their order; Q tiles for several rounds of the rings. Of sums that a CTA
// sets to 0 for others more heads, and two KV tiles, since one would store.
verify::Config problem(const BwdConfig& c) {
  verify::Config p;
  p.dtype = FA3_BF16;
  p.backward = true;
  p.heads_q = 2;
  p.heads_kv = 1;
  p.head_dim_qk = p.head_dim_v = c.head_dim_qk;
  p.seqlen_q = 5 * c.tile_q / 2;
  p.seqlen_kv = c.cluster_kv() - 8;
  p.alignment = 16;
  if (c.sets_zeros) p.batch = 3, p.seqlen_kv = 2 * c.tile_kv() - 8;
  if (c.functors) {  // and of what the finder hands over
    p.alibi = true, p.sequence_ids = 2;
    p.seqlen_q = 5 * c.tile_q;
  }
  if (c.ragged) {  // and keys of no sequence, more than a CTA has rows
    p.varlen_q = {p.seqlen_q};
    p.varlen_kv = {p.seqlen_kv};
    p.spare_kv = 300;
    p.with = {"sinks"};
  }
  return p;
}

const std::vector<Spared> kSpared = {
    {nullptr, "late", "for speed: the second consumer may start with the first"},
    {"split", "seen",
     "dS is there, which has been made of the same stage; but another thread has waited for that"},
    {"split", "group", "dQ's GEMM, which is waited for, takes the one before into its group"},
    {"by_rows", "group", "dQ's GEMM, which is waited for, takes the one before into its group"},
    {"zeros", "group", "dQ's GEMM, which is waited for, takes the one before into its group"},
    {"half_tile", "group", "dQ's GEMM, which is waited for, takes the one before into its group"},
    {nullptr, "aligned", "the simulator's barriers bring the lanes of a warp together, too"},
    {nullptr, "lanes", "bar.arrive brings the lanes of a warp together, too"},
    {nullptr, "range", "shuffles bring the lanes of a warp together before they read it"},
    {nullptr, "again", "stmatrix brings the lanes of a warp together, too"},
    {nullptr, "fenced",
     "GEMMs of the same step have fenced before, behind the last register access"},
};

class BwdMutations : public testing::TestWithParam<Mutated> {};

TEST_P(BwdMutations, EveryLineIsMissed) {
  if (kSanitized && std::strcmp(GetParam().name, "by_rows") != 0)
    GTEST_SKIP() << "one kernel is enough for sanitizers, which look at the simulator";
  TestRuntime runtime;
  BwdRun attention(runtime, problem(GetParam().config), GetParam().config);
  Mutations(runtime, attention).expect_every_line_missed(GetParam().name, kSpared);
}

constexpr BwdConfig kMasked = [] {
  BwdConfig c = bwd_config("d64_terms");
  c.attn_mask = MaskTensor::kF32;
  c.functors = true;  // whose ids threads read, and let go of
  return c;
}();
const bool mask_gradient_added = (add_mask_gradient<kMasked>(), true);

// Several rounds of the ring, of tiles of one step each, so that nothing else keeps the next one's
// sums over keys apart from this one's.
TEST(MaskGradientMutations, EveryLineIsMissed) {
  if (kSanitized) GTEST_SKIP() << "by_rows is enough for sanitizers";
  verify::Config p = problem(kMasked);
  p.heads_q = 1;
  p.seqlen_q = 700;
  p.attn_mask = FA3_F32;
  p.mask_dims = "q";
  p.dattn_mask = true;
  TestRuntime runtime;
  MaskGradientRun attention(runtime, p, kMasked);
  Mutations(runtime, attention).expect_every_line_missed("mask_gradient", kSpared);
}

INSTANTIATE_TEST_SUITE_P(Kernels, BwdMutations,
                         testing::Values(Mutated{"by_rows", kByRows},
                                         Mutated{"half_tile", kHalfTile}, Mutated{"split", kSplit},
                                         Mutated{"zeros", kZeros}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3::sim
