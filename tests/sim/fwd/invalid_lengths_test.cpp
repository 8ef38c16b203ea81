// SPDX-License-Identifier: BSD-3-Clause
// invalid_lengths_test.cpp — the forward kernel on lengths that hold anything, and on scales that
// are NaN.
#include "sim/invalid_lengths.h"

#include <cmath>

#include "plan/sm90/fwd/names.h"
#include "sim/fwd/configs.h"
#include "sim/fwd/kit.h"

namespace fa3::sim {
namespace {

constexpr FwdConfig kCausal = small(MaskKind::kCausal, true);
constexpr FwdConfig kWindow = [] {
  FwdConfig c = small(MaskKind::kWindow, true);
  c.tile.consumer_wgs = 3, c.tile.stages = 4;
  return c;
}();
constexpr FwdConfig kFull = small(MaskKind::kFull, true);
// 8 bits, with an image of V and scales that follow lengths as well.
constexpr FwdConfig with_8_bits(KvScales of) {
  return with_scales(with_flush(with_e4m3(small(MaskKind::kCausal, true), 0), 64), of);
}
constexpr FwdConfig kTileScales = with_8_bits(KvScales::kTiles);
constexpr FwdConfig kKeyScales = with_8_bits(KvScales::kKeys);
const bool added = (add_fwd<kCausal>(), add_fwd<kWindow>(), add_fwd<kFull>(),
                    add_fwd<kTileScales>(), add_fwd<kKeyScales>(), true);

verify::Config problem(const FwdConfig& c) {
  verify::Config p = in_types_of(c, with_lengths());
  using Of = verify::Scales::Of;
  if (c.types.scaled()) p.heads_q = 1;
  if (c.scores.kv_scales == KvScales::kTiles) p.q_scale = {Of::kBlocks, 32};
  if (c.scores.kv_scales == KvScales::kKeys) p.q_scale = {Of::kTokens};
  if (c.mask.kind == MaskKind::kCausal) p.mask = FA3_MASK_CAUSAL;
  if (c.mask.kind == MaskKind::kWindow) p.mask = FA3_MASK_WINDOW, p.left = 30, p.right = 10;
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
                         [](const auto& info) { return word(info.param.mask.kind); });

class Fwd8BitInvalidLengths : public FwdInvalidLengths {};

TEST_P(Fwd8BitInvalidLengths, InvalidOnes_TouchNothingOutside) {
  lengths_.expect_named_sequences_harmless();
  lengths_.expect_random_ones_harmless(some_of(5));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Fwd8BitInvalidLengths, testing::Values(kTileScales, kKeyScales),
                         [](const auto& info) { return word(info.param.scores.kv_scales); });

// ---- Scales -------------------------------------------------------------------------------------

// As lengths, scales in device memory are read by kernels alone: one that is NaN reaches exactly
// the rows that see its keys.
TEST(FwdDeviceScales, Nan_ReachesExactlyTheRowsThatSeeItsKeys) {
  constexpr int64_t kSeqlen = 150, kHead = 1;
  struct Case {
    FwdConfig config;
    bool of_k;
    verify::Index at;
    int64_t first;  // key
  };
  for (const Case& c :
       {Case{kTileScales, true, {0, kHead, 1, 0}, 64}, Case{kKeyScales, true, {0, kHead, 70}, 70},
        Case{kKeyScales, false, {0, kHead, 14, 0}, 70}}) {
    verify::Config p;
    p.heads_q = p.heads_kv = 2;
    p.seqlen_q = p.seqlen_kv = kSeqlen;
    p.mask = FA3_MASK_CAUSAL;
    p.alignment = 16;
    TestRuntime runtime;
    FwdRun run(runtime, in_types_of(c.config, p), c.config);
    const verify::Tensors& t = run.tensors();
    verify::set((c.of_k ? t.k_scale : t.v_scale).view, c.at, NAN);
    run.run();
    for (int64_t row = 0; row < kSeqlen; ++row)
      for (int64_t head = 0; head < 2; ++head)
        EXPECT_EQ(std::isnan(verify::get(t.o.view, {0, row, head, 5})),
                  head == kHead && row >= c.first)
            << word(c.config.scores.kv_scales) << ' ' << c.of_k << ' ' << row << ' ' << head;
  }
}

}  // namespace
}  // namespace fa3::sim
