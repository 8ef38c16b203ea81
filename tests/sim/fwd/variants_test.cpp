// SPDX-License-Identifier: BSD-3-Clause
// variants_test.cpp — the kernels of the ablation, which no row of the table has (serial and
// three-stage steps, no specialisation), uneven parts of O, and functors: right by the FP64
// reference, and the same bits under every schedule of the simulator.
#include <algorithm>
#include <utility>

#include "sim/fwd/configs.h"
#include "sim/fwd/kit.h"
#include "tests/kit/thorough.h"

namespace fa3::sim {
namespace {

template <MaskKind kMask, bool kRagged, size_t... kI>
void add_variants(std::index_sequence<kI...>) {
  (add_fwd<kVariants<kMask, kRagged>[kI].config, kVariants<kMask, kRagged>[kI].functors>(), ...);
}
template <MaskKind kMask>
void add_mask() {
  using All = std::make_index_sequence<std::size(kVariants<kMask, false>)>;
  add_variants<kMask, false>(All{});
  add_variants<kMask, true>(All{});
}
const bool added = (add_mask<MaskKind::kFull>(), add_mask<MaskKind::kCausal>(),
                    add_mask<MaskKind::kWindow>(), true);

verify::Config problem(MaskKind mask, bool ragged) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.heads_q = 2;
  c.alignment = 16;
  c.seqlen_q = 333;
  c.seqlen_kv = 301;
  if (ragged) {
    c.varlen_q = {300, 0, 1, 140, 5};
    c.varlen_kv = {270, 3, 0, 65, 40};
    c.spare_q = 9;
  }
  if (mask == MaskKind::kCausal) c.mask = FA3_MASK_CAUSAL;
  if (mask == MaskKind::kWindow) c.mask = FA3_MASK_WINDOW, c.left = 70, c.right = 40;
  return c;
}

struct Case {
  Variant variant;
  bool ragged;
  size_t index;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.variant.name; }

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto take = [&](const auto& variants, bool ragged) {
    for (const Variant& variant : variants) all.push_back({variant, ragged, all.size()});
  };
  take(kVariants<MaskKind::kFull, false>, false), take(kVariants<MaskKind::kFull, true>, true);
  take(kVariants<MaskKind::kCausal, false>, false), take(kVariants<MaskKind::kCausal, true>, true);
  take(kVariants<MaskKind::kWindow, false>, false), take(kVariants<MaskKind::kWindow, true>, true);
  return all;
}

class FwdVariants : public testing::TestWithParam<Case> {};

TEST_P(FwdVariants, RightUnderEverySchedule) {
  const Case& c = GetParam();
  if (!kit::due(c.index, 6)) GTEST_SKIP() << (kit::thorough() ? "of make test" : "of make ci");
  TestRuntime runtime;
  verify::Config made = problem(c.variant.config.mask.kind, c.ragged);
  made.head_dim_v = c.variant.config.tile.head_dim_v;
  made = in_types_of(c.variant.config, made);
  // Maxima grow after O was parked, too.
  if (c.variant.config.accumulate.park_tiles > 0) made.magnitude = 4;
  if (c.variant.functors) made.alibi = true, made.sequence_ids = 3;
  FwdRun attention(runtime, made, c.variant.config);
  std::vector<unsigned char> first;
  for (u64 seed = 0; seed < some_of(3); ++seed) {
    runtime.device.options.seed = seed;
    ASSERT_NO_THROW(attention.run()) << "seed " << seed;
    if (seed == 0) {
      first = attention.bits();
      for (const verify::OutputResult& r : attention.judge()) EXPECT_TRUE(r.ok) << to_text(r);
    }
    ASSERT_EQ(attention.bits(), first) << "seed " << seed;
  }
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  constexpr const char* kMasks[] = {"full", "causal", "window"};
  std::string name = info.param.variant.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  name += std::string("_") + kMasks[static_cast<int>(info.param.variant.config.mask.kind)];
  return name + (info.param.ragged ? "_ragged" : "");
}

INSTANTIATE_TEST_SUITE_P(All, FwdVariants, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace fa3::sim
