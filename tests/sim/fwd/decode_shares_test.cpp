// SPDX-License-Identifier: BSD-3-Clause
// decode_shares_test.cpp — how the decode kernel's CTAs share the units of a call.
#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <span>

#include "sim/fwd/decode_kit.h"

namespace fa3::sim {
namespace {

constexpr DecodeConfig two_ctas() {
  DecodeConfig c = small_decode(true);
  c.ctas_per_sm = 2;
  return c;
}

constexpr DecodeConfig kWide = wide(small_decode(true), 64);

const bool added = (add_decode<small_decode(false)>(), add_decode<small_decode(true)>(),
                    add_decode<two_ctas()>(), add_decode<kWide>(), true);

verify::Config of_lengths(const std::vector<int64_t>& used, int64_t heads_kv) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.batch = static_cast<int64_t>(used.size());
  c.heads_kv = heads_kv, c.heads_q = 4 * heads_kv;
  c.seqlen_q = 1;
  c.seqlen_kv = *std::max_element(used.begin(), used.end());
  c.seqused_kv = used;
  c.alignment = 16;
  return c;
}

// How many parts CTAs left to merge.
int parts_of(const verify::Config& c, const DecodeConfig& config, int multiprocessors) {
  TestRuntime runtime;
  DecodeRun run(runtime, c, config, multiprocessors);
  constexpr std::byte kBefore{0x5A};
  std::ranges::fill(run.workspace(), kBefore);
  run.run();
  for (const verify::OutputResult& result : run.judge()) EXPECT_TRUE(result.ok) << result.name;
  const size_t bytes = sizeof(float) * static_cast<size_t>(config.rows * config.head_dim_v);
  const std::span<std::byte> parts = run.workspace();  // O first, two slots a CTA
  int count = 0;
  for (int slot = 0; slot < 2 * multiprocessors * config.ctas_per_sm; ++slot) {
    const size_t begin = bytes * static_cast<size_t>(slot);
    if (begin + bytes > parts.size()) break;  // fewer CTAs
    const auto changed = [](std::byte b) { return b != kBefore; };
    count += std::ranges::any_of(parts.subspan(begin, bytes), changed) ? 1 : 0;
  }
  return count;
}
bool leaves_parts(const verify::Config& c, const DecodeConfig& config, int multiprocessors) {
  return parts_of(c, config, multiprocessors) > 0;
}

TEST(SimDecodeShares, EqualUnitsAreNotCut) {
  EXPECT_FALSE(leaves_parts(of_lengths({320, 320, 320, 320}, 2), small_decode(true), 4));
  EXPECT_FALSE(leaves_parts(of_lengths({320, 320, 320, 320}, 2), small_decode(true), 8));
  EXPECT_FALSE(leaves_parts(of_lengths({320, 320, 320, 320}, 2), two_ctas(), 4));
  verify::Config dense = of_lengths({320, 320, 320, 320}, 2);
  dense.seqused_kv.clear();
  EXPECT_FALSE(leaves_parts(dense, small_decode(false), 4));
}

// A unit costs two tiles more than it has: shares of the next may begin there.
TEST(SimDecodeShares, NearlyEqualUnitsAreNotCut) {
  EXPECT_FALSE(leaves_parts(of_lengths({17 * 64, 16 * 64, 16 * 64}, 1), small_decode(true), 3));
  EXPECT_FALSE(leaves_parts(of_lengths({19 * 64, 16 * 64, 16 * 64}, 1), small_decode(true), 3));
  EXPECT_TRUE(leaves_parts(of_lengths({22 * 64, 16 * 64, 16 * 64}, 1), small_decode(true), 3));
}

// In place of a kernel: how many units each CTA has.
constexpr DecodeConfig counting() {
  DecodeConfig c = small_decode(true);
  c.stages = 3;
  return c;
}
std::array<std::atomic<int>, 8> units_of_cta;

void count_units(const DecodeArgs args) {
  DecodeUnits<counting()> units(args.shape);
  int count = 0;
  for_units(units, args, [&](const DecodeUnit&, i32, i32, bool, u32) { ++count; });
  units_of_cta[ptx::block_index_x()] = count;
}

// Those that pad a batch are spread over the CTAs by the time that they take: by their tiles alone
// one CTA would have 7 of the last 8.
TEST(SimDecodeShares, ShortUnitsCostMoreThanTheirTiles) {
  const Registration registered(decode_expression(counting()).c_str(), kernel_of(&count_units));
  for (const int64_t keys : {0, 1, 64}) {
    std::vector<int64_t> used(12, keys);
    std::fill_n(used.begin(), 4, 12 * 64);
    TestRuntime runtime;
    DecodeRun run(runtime, of_lengths(used, 1), counting(), 8, 1, false);
    run.run();
    EXPECT_EQ(*std::ranges::max_element(units_of_cta), 3) << keys << " keys";
  }
}

// Units are cut where a CTA would have twice the work of another.
TEST(SimDecodeShares, UnequalUnitsAreCut) {
  EXPECT_TRUE(leaves_parts(of_lengths({320, 320, 320, 320}, 2), small_decode(true), 5));
  EXPECT_TRUE(leaves_parts(of_lengths({640, 64, 64}, 1), small_decode(true), 3));
  EXPECT_TRUE(leaves_parts(of_lengths({640}, 2), small_decode(true), 4));
}

// A share of whole units is longer than the mean by less than one of them.
TEST(SimDecodeShares, ManyShortUnitsAreNotCut) {
  std::vector<int64_t> used;
  for (int b = 0; b < 40; ++b) used.push_back(b % 3 == 0 ? 128 : 64);
  EXPECT_FALSE(leaves_parts(of_lengths(used, 2), small_decode(true), 2));
}

// Two units of 12 tiles on 16 SMs: halves, thirds and quarters are exact.
TEST(SimDecodeShares, PartsAreAtMostNumSplits) {
  verify::Config c = of_lengths({12 * 64}, 2);
  EXPECT_GT(parts_of(c, small_decode(true), 16), 8);
  for (const int splits : {1, 2, 3, 4, 7, 100}) {
    c.numbers["num_splits"] = splits;
    const int parts = parts_of(c, small_decode(true), 16);
    EXPECT_LE(parts, splits == 1 ? 0 : 2 * splits);
    if (splits >= 2 && splits <= 4) {
      EXPECT_EQ(parts, 2 * splits);
    }
    EXPECT_GE(parts, splits == 1 ? 0 : std::min(2 * splits - 2, 12)) << splits;
  }
}

// Of unequal units, and of more than there are CTAs for, none has more parts than that.
TEST(SimDecodeShares, PartsOfOneUnitAreAtMostNumSplits) {
  for (const int64_t tiles : {7, 8, 12}) {
    for (const int splits : {2, 3, 4}) {
      verify::Config c = of_lengths({64 * tiles}, 1);
      c.numbers["num_splits"] = splits;
      for (const int sms : {2, 3, 5, 9}) EXPECT_LE(parts_of(c, small_decode(true), sms), splits);
    }
  }
}

// O and LSE of the first sequence while the others change.
std::vector<std::vector<unsigned char>> bits_of_first(int32_t num_splits) {
  verify::Config c = of_lengths({640, 640, 640}, 1);
  c.numbers["num_splits"] = num_splits;
  c.lse = false;
  TestRuntime runtime;
  DecodeRun run(runtime, c, small_decode(true), 4);
  std::vector<std::vector<unsigned char>> found;
  for (const std::vector<i32>& others :
       {std::vector<i32>{640, 640, 640}, {640, 0, 10}, {640, 300, 640}, {640, 100, 100}}) {
    run.set_lengths(kSequsedKv, others);
    run.run();
    std::vector<unsigned char> bits = run.bits();
    bits.resize(bits.size() / 3);
    found.push_back(bits);
  }
  return found;
}

TEST(SimDecodeShares, UnsplitBitsDependOnTheSequenceAlone) {
  const auto same = [](const auto& bits) {
    return std::ranges::all_of(bits, [&](const auto& x) { return x == bits[0]; });
  };
  EXPECT_TRUE(same(bits_of_first(1)));
  EXPECT_FALSE(same(bits_of_first(0)));  // else this shows nothing
}

TEST(SimDecodeShares, AnyLengthsOnAnyNumberOfSms_AreRight) {
  std::mt19937 random(7);
  for (int i = 0; i < (kSanitized ? 4 : 25); ++i) {
    std::vector<int64_t> used(1 + random() % 40);  // beyond 32, which a warp looks at together
    for (int64_t& length : used) length = random() % 4 == 0 ? 0 : random() % 400;
    used[random() % used.size()] = 1 + random() % 600;
    const int64_t heads_kv = 1 + random() % 3;
    verify::Config c = of_lengths(used, heads_kv);
    c.numbers["num_splits"] = i % 2 == 0 ? 0 : static_cast<int32_t>(1 + random() % 5);
    parts_of(c, small_decode(true), static_cast<int>(1 + random() % 9));
  }
}

// A unit for each of several tiles of rows.
verify::Config of_rows(int64_t tiles, const std::vector<int64_t>& used) {
  verify::Config c = of_lengths(used, 1);
  c.heads_q = 32, c.seqlen_q = 2 * tiles;
  return c;
}

TEST(SimDecodeShares, UnitsThatAreAlikeAreCutByThemselves) {
  EXPECT_EQ(parts_of(of_rows(3, {640}), kWide, 6), 6);         // halves
  EXPECT_EQ(parts_of(of_rows(3, {640, 640}), kWide, 13), 12);  // a CTA idles
  EXPECT_EQ(parts_of(of_rows(1, {768}), kWide, 13), 12);
  EXPECT_EQ(parts_of(of_rows(1, {640, 640}), kWide, 5), 6);  // halves would be 5 tiles for 4
}

TEST(SimDecodeShares, CopiesOfTheLineAreCutAlike) {
  EXPECT_EQ(parts_of(of_rows(2, {640, 320}), kWide, 4), 4);  // without copies 6
  EXPECT_FALSE(leaves_parts(of_rows(2, {640, 640, 640, 640}), kWide, 4));
  EXPECT_FALSE(leaves_parts(of_rows(4, {640, 640}), kWide, 4));
}

TEST(SimDecodeShares, AnyRowsOnAnyNumberOfSms_AreRight) {
  std::mt19937 random(11);
  for (int i = 0; i < (kSanitized ? 4 : 25); ++i) {
    verify::Config c;
    c.dtype = FA3_BF16;
    c.heads_kv = 1 + random() % 2, c.heads_q = 24 * c.heads_kv;
    c.alignment = 16;
    const size_t batch = 1 + random() % 5;
    const bool alike = random() % 2 == 0;  // as many tiles of rows everywhere
    for (size_t b = 0; b < batch; ++b) {
      c.varlen_q.push_back(alike ? 6 + random() % 3 : random() % 9);
      c.varlen_kv.push_back(random() % 4 == 0 ? random() % 9 : 9 + random() % 700);
    }
    c.spare_q = random() % 3 == 0 ? 1 + random() % 9 : 0;
    if (random() % 3 > 0) c.mask = FA3_MASK_CAUSAL;
    if (random() % 3 == 0) c.mask = FA3_MASK_WINDOW, c.left = random() % 200, c.right = 0;
    c.numbers["num_splits"] = i % 2 == 0 ? 0 : static_cast<int32_t>(1 + random() % 5);
    parts_of(c, kWide, static_cast<int>(1 + random() % 9));
  }
}

}  // namespace
}  // namespace fa3::sim
