// SPDX-License-Identifier: BSD-3-Clause
// mutations_test.cpp — every wait, arrival, fence and barrier of the forward kernel is left out in
// turn, in the simulator: it has to report that, or the result has to differ. Lines whose loss
// goes unnoticed are listed below with the reason.
#include "sim/mutations.h"

#include <cstring>
#include <vector>

#include "sim/fwd/configs.h"
#include "sim/fwd/kit.h"

namespace fa3::sim {
namespace {

struct Mutated {
  const char* name;
  FwdConfig config;
  verify::Config problem;
};
void PrintTo(const Mutated& m, std::ostream* out) { *out << m.name; }

constexpr FwdConfig kFull = small(MaskKind::kFull, false);
constexpr FwdConfig kTwoQStages = [] {
  FwdConfig c = kFull;
  c.tile.q_stages = 2;
  return c;
}();
constexpr FwdConfig kOInQ = [] {
  FwdConfig c = kFull;
  c.output.in_q = true;
  return c;
}();
constexpr FwdConfig kParts = with_uneven_parts(kFull);
constexpr FwdConfig kSkipping = [] {
  FwdConfig c = small(MaskKind::kCausal, true);
  c.tile.consumer_wgs = 3;
  return c;
}();
constexpr FwdConfig kThreeStages = with_step(kFull, FwdStep::kThreeStage);
constexpr FwdConfig kSerial = with_step(kFull, FwdStep::kSerial);
constexpr FwdConfig kUnspecialised = without_specialisation(kFull);

constexpr FwdConfig kE4m3 = with_e4m3(kFull, 2);
constexpr FwdConfig kVImage = with_e4m3(kFull, 0);
constexpr FwdConfig kFlushed = with_flush(kVImage, 32);
constexpr FwdConfig kMaskTiles = [] {
  FwdConfig c = kFull;
  c.scores.kind = ScoreKind::kScaled;
  c.mask.tensor = MaskTensor::kF32;
  c.mask.stages = 1;
  return c;
}();

const bool added = (add_fwd<kE4m3>(), add_fwd<kVImage>(), add_fwd<kFlushed>(), add_fwd<kFull>(),
                    add_fwd<kTwoQStages>(), add_fwd<kOInQ>(), add_fwd<kParts>(),
                    add_fwd<kSkipping>(), add_fwd<kThreeStages>(), add_fwd<kSerial>(),
                    add_fwd<kUnspecialised>(), add_fwd<kMaskTiles>(), true);

// Several Q tiles for each of the four CTAs, and KV tiles for several rounds of the rings.
verify::Config dense() {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.heads_q = 2;
  c.alignment = 16;
  c.magnitude = 20;  // maxima grow, so that O is rescaled
  c.seqlen_q = 4 * 128 + 100;
  c.seqlen_kv = 5 * 32 + 9;
  return c;
}
verify::Config wide_v() {
  verify::Config c = dense();
  c.head_dim_v = 80;
  return c;
}
verify::Config masked() {
  verify::Config c = dense();
  c.attn_mask = FA3_F32;
  c.mask_dims = "qk";
  c.seqlen_kv = 5 * 32 + 12;  // rows that TMA can address
  return c;
}
verify::Config varlen() {
  verify::Config c = dense();
  c.varlen_q = {300, 20, 450};
  c.varlen_kv = {200, 40, 0};  // Q tiles that visit no KV tile follow each other fast
  c.mask = FA3_MASK_CAUSAL;
  return c;
}

std::vector<Mutated> kernels() {
  return {{"two_stages", kFull, dense()},
          {"two_q_stages", kTwoQStages, dense()},
          {"o_in_q", kOInQ, dense()},
          {"o_parts", kParts, wide_v()},
          {"skipping", kSkipping, varlen()},
          {"three_stages", kThreeStages, dense()},
          {"serial", kSerial, dense()},
          {"unspecialised", kUnspecialised, dense()},
          {"e4m3", kE4m3, in_types_of(kE4m3, dense())},
          {"v_image", kVImage, in_types_of(kVImage, dense())},
          {"flushed", kFlushed, in_types_of(kFlushed, dense())},
          {"mask_tiles", kMaskTiles, masked()}};
}

// ---- Lines whose loss goes unnoticed ------------------------------------------------------------

constexpr const char* kShortTile =
    "a slot is written again when the producer has loaded the tile after it: too late to matter, "
    "unless that has fewer KV tiles than the rings have stages, as in the kernel skipping";
const std::vector<Spared> kSpared = {
    {nullptr, "reconverge", "for ptxas: uniform registers"},
    {nullptr, "lagging",
     "takes a lane that lags a round behind; SimFwdSm90 NoLse deadlocks without the line"},
    {"o_in_q", "work_read",
     "the scheduler writes the slot again when the producer has claimed, which is after it has "
     "loaded the next Q into the buffer that all have left"},
    {"two_stages", "work_read", kShortTile},
    {"two_q_stages", "work_read", kShortTile},
    {"o_parts", "work_read", kShortTile},
    {"three_stages", "work_read", kShortTile},
    {"serial", "work_read", kShortTile},
    {"e4m3", "work_read", kShortTile},
    {"v_image", "work_read", kShortTile},
    {"flushed", "work_read", kShortTile},
    {"mask_tiles", "work_read", kShortTile},
    {"mask_tiles", "converge", "the simulator does not ask whether lanes are converged"},
    {"v_image", "converge", "the simulator does not ask whether lanes are converged"},
    {"flushed", "converge", "the simulator does not ask whether lanes are converged"},
    {"unspecialised", "converge", "the simulator does not ask whether lanes are converged"},
    {"unspecialised", "work_read", "a CTA works on one tile"},
    {"unspecialised", "one_tile", "a CTA works on one tile"},
};

class FwdMutations : public testing::TestWithParam<Mutated> {};

TEST_P(FwdMutations, EveryLineIsMissed) {
  if (kSanitized && std::strcmp(GetParam().name, "two_stages") != 0)
    GTEST_SKIP() << "one kernel is enough for sanitizers, which look at the simulator";
  TestRuntime runtime;
  FwdRun attention(runtime, GetParam().problem, GetParam().config);
  Mutations(runtime, attention).expect_every_line_missed(GetParam().name, kSpared);
}

INSTANTIATE_TEST_SUITE_P(Kernels, FwdMutations, testing::ValuesIn(kernels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3::sim
