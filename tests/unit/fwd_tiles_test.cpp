// SPDX-License-Identifier: BSD-3-Clause
// fwd_tiles_test.cpp — which tiles the kernels of Hopper visit, the forward's and the backward's,
// and in which order, in 32 bits against the 64 bits of kv_range.h and against seeing pair by pair.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device/attn/kv_range.h"
#include "device/attn/mask.h"
#include "device/attn/tile_order.h"
#include "device/attn/tile_range.h"
#include "device/sm90/bwd/rows.h"
#include "device/warp/score.h"

namespace fa3::sm90 {
namespace {

// One Q tile of one sequence.
struct Drawn {
  Band32 band;
  i32 q_used, kv_used, row, rows, tile_kv;

  Band wide() const { return {{band.left, band.right}, Chunks<i64>::of(band.chunks.size())}; }
  SeqLens len() const { return {q_used, kv_used}; }
  i32 end_row() const { return std::min(row + rows, q_used); }  // of the rows that count
};
void PrintTo(const Drawn& d, std::ostream* out) {
  *out << "left " << d.band.left << " right " << d.band.right << " chunk " << d.band.chunks.size()
       << " q " << d.q_used << " kv " << d.kv_used << " rows " << d.row << " + " << d.rows
       << " tile_kv " << d.tile_kv;
}

class Draw {
 public:
  i32 between(i32 least, i32 most) {
    return std::uniform_int_distribution<i32>(least, most)(random_);
  }
  i32 bound() {  // of a window: none, 0, few keys, more keys than there are
    switch (between(0, 3)) {
      case 0:
        return Band32::kUnbounded;
      case 1:
        return 0;
      case 2:
        return between(1, 40);
      default:
        return between(0, 400);
    }
  }
  Drawn problem(i32 most) {
    Drawn d{};
    d.band = {{bound(), bound()}, Chunks<i32>::of(between(0, 1) * between(1, 300))};
    d.q_used = between(0, 9) == 0 ? 0 : between(1, most);
    d.kv_used = between(0, 9) == 0 ? 0 : between(1, most);
    d.rows = 16 * between(1, 12);
    d.row = d.rows * between(0, most / d.rows + 1);  // beyond q_used, too
    d.tile_kv = 16 * between(1, 8);
    return d;
  }

 private:
  std::mt19937 random_{7};
};

TEST(KeysOfRow, RandomBands_AreThoseOfKvRange) {
  Draw draw;
  for (int n = 0; n < 3000; ++n) {
    const Drawn d = draw.problem(n % 2 == 0 ? 300 : 1 << 29);
    for (const i32 row : {d.row, d.row + 1, d.q_used - 1}) {
      if (row < 0 || row >= d.q_used) continue;
      const Range<i32> keys = keys_of_row(d.band, d.q_used, d.kv_used, row);
      const IndexRange expected = visible_keys(d.wide(), d.len(), row);
      ASSERT_EQ(keys.empty(), expected.empty()) << testing::PrintToString(d) << " row " << row;
      if (keys.empty()) continue;
      ASSERT_EQ(keys.lo, expected.lo) << testing::PrintToString(d) << " row " << row;
      ASSERT_EQ(keys.hi, expected.hi) << testing::PrintToString(d) << " row " << row;
    }
  }
}

TEST(TileRange, RandomBands_AreThoseOfKvRange) {
  Draw draw;
  for (int n = 0; n < 6000; ++n) {
    const Drawn d = draw.problem(n % 2 == 0 ? 300 : 1 << 29);
    const TileRange range = tile_range(d.band, d.q_used, d.kv_used, d.row, d.rows, d.tile_kv);
    const IndexRange rows{d.row, std::max(d.row, d.end_row())};
    const IndexRange some = visible_keys(d.wide(), d.len(), rows);
    ASSERT_EQ(range.empty(), some.empty()) << testing::PrintToString(d);
    if (range.empty()) {  // loops and skips count on zeros
      ASSERT_EQ(range.first, 0) << testing::PrintToString(d);
      ASSERT_EQ(range.end, 0) << testing::PrintToString(d);
      continue;
    }
    ASSERT_EQ(range.first, some.lo / d.tile_kv) << testing::PrintToString(d);
    ASSERT_EQ(range.end, (some.hi + d.tile_kv - 1) / d.tile_kv) << testing::PrintToString(d);
    ASSERT_LE(range.first, range.unmasked_first) << testing::PrintToString(d);
    ASSERT_LE(range.unmasked_first, range.unmasked_end) << testing::PrintToString(d);
    ASSERT_LE(range.unmasked_end, range.end) << testing::PrintToString(d);
    const IndexRange all = common_keys(d.wide(), d.len(), rows);
    const i64 unmasked_first = (all.lo + d.tile_kv - 1) / d.tile_kv,
              unmasked_end = all.hi / d.tile_kv;
    if (unmasked_first < unmasked_end) {  // no unmasked tile takes the masked path
      ASSERT_EQ(range.unmasked_first, unmasked_first) << testing::PrintToString(d);
      ASSERT_EQ(range.unmasked_end, unmasked_end) << testing::PrintToString(d);
    } else {
      ASSERT_EQ(range.unmasked_first, range.unmasked_end) << testing::PrintToString(d);
    }
  }
}

TEST(TileRange, EveryVisiblePair_IsVisitedAndPlainTilesAreAllVisible) {
  Draw draw;
  for (int n = 0; n < 1500; ++n) {
    const Drawn d = draw.problem(150);
    const TileRange range = tile_range(d.band, d.q_used, d.kv_used, d.row, d.rows, d.tile_kv);
    for (i32 row = d.row; row < d.end_row(); ++row) {
      for (i32 key = 0; key < d.kv_used; ++key) {
        const i32 tile = key / d.tile_kv;
        const bool seen = sees(d.wide(), d.len(), row, key);
        if (seen) {
          ASSERT_TRUE(range.first <= tile && tile < range.end)
              << testing::PrintToString(d) << " row " << row << " key " << key;
        }
        if (range.unmasked_first <= tile && tile < range.unmasked_end) {
          ASSERT_TRUE(seen) << testing::PrintToString(d) << " row " << row << " key " << key;
        }
      }
    }
    if (d.row < d.q_used) {  // an unmasked tile has no keys beyond the last, either
      ASSERT_LE(range.unmasked_end * d.tile_kv, std::max(d.kv_used, range.first * d.tile_kv))
          << testing::PrintToString(d);
    }
  }
}

TEST(QTileRange, EveryVisiblePair_IsVisitedAndPlainTilesAreAllVisible) {
  Draw draw;
  for (int n = 0; n < 1500; ++n) {
    const Drawn d = draw.problem(150);  // rows and tile_kv are those of keys and of queries here
    const TileRange range = q_tile_range(d.band, d.q_used, d.kv_used, d.row, d.rows, d.tile_kv);
    const i32 end_key = std::min(d.row + d.rows, d.kv_used);
    for (i32 key = d.row; key < end_key; ++key) {
      const Range<i32> rows = rows_of_key(d.band, d.q_used, d.kv_used, key);
      const IndexRange exact = visible_queries(d.wide(), d.len(), key);
      for (i32 row = 0; row < d.q_used; ++row) {
        const i32 tile = row / d.tile_kv;
        const bool seen = sees(d.wide(), d.len(), row, key);
        ASSERT_EQ(rows.lo <= row && row < rows.hi, seen)
            << testing::PrintToString(d) << " row " << row << " key " << key;
        ASSERT_EQ(exact.lo <= row && row < exact.hi, seen)
            << testing::PrintToString(d) << " row " << row << " key " << key;
        if (seen) {
          ASSERT_TRUE(range.first <= tile && tile < range.end)
              << testing::PrintToString(d) << " row " << row << " key " << key;
        }
        if (range.unmasked_first <= tile && tile < range.unmasked_end) {
          ASSERT_TRUE(seen) << testing::PrintToString(d) << " row " << row << " key " << key;
        }
      }
    }
  }
}

// A consumer's 64 rows visit part of what the whole tile visits.
TEST(TileRange, PartOfTheRows_StaysWithinTheWhole) {
  Draw draw;
  for (int n = 0; n < 4000; ++n) {
    Drawn d = draw.problem(700);
    d.rows = 192;
    d.row = 192 * draw.between(0, 3);
    const TileRange all = tile_range(d.band, d.q_used, d.kv_used, d.row, d.rows, d.tile_kv);
    for (i32 w = 0; w < 3; ++w) {
      const TileRange own = tile_range(d.band, d.q_used, d.kv_used, d.row + 64 * w, 64, d.tile_kv);
      if (own.empty()) continue;
      ASSERT_LE(all.first, own.first) << testing::PrintToString(d) << " consumer " << w;
      ASSERT_LE(own.end, all.end) << testing::PrintToString(d) << " consumer " << w;
    }
  }
}

TEST(BandMask, RandomBands_HidesWhatIsNotSeen) {
  Draw draw;
  for (int n = 0; n < 1500; ++n) {
    const Drawn d = draw.problem(120);
    const i32 column = draw.between(0, 3) * 2;
    const BandMask mask = BandMask::of(d.band, d.q_used, d.kv_used, d.row, column);
    for (int h = 0; h < 2; ++h) {
      const i32 row = d.row + 8 * h;
      bool nothing = true;
      for (i32 key = 0; key < d.kv_used + 20; ++key) {
        const bool in = key < d.kv_used && row < d.q_used;
        const bool expected = in && sees(d.wide(), d.len(), row, key);
        nothing = nothing && !expected;
        ASSERT_EQ(mask.lo[h] <= key - column && key - column < mask.hi[h], expected)
            << testing::PrintToString(d) << " row " << row << " key " << key;
      }
      ASSERT_EQ(mask.sees_nothing(h), nothing) << testing::PrintToString(d) << " row " << row;
    }
  }
}

// Head groups of 1, 2, 3 and all heads, the last of which may have fewer.
class TileOrders : public testing::TestWithParam<std::tuple<u32, bool>> {
 protected:
  static constexpr u32 kHeads = 7, kTiles = 5;
  TileOrder order() const {
    return {kTiles, kHeads, std::get<0>(GetParam()), std::get<1>(GetParam())};
  }
};

TEST_P(TileOrders, EveryTile_Once) {
  std::set<std::pair<u32, u32>> seen;
  const TileOrder order = this->order();
  ASSERT_EQ(order.tiles(), kHeads * kTiles);
  for (u32 i = 0; i < order.tiles(); ++i) {
    const QTile at = order.at(i);
    EXPECT_LT(at.tile, kTiles);
    EXPECT_LT(at.head, kHeads);
    EXPECT_TRUE(seen.emplace(at.tile, at.head).second) << "index " << i;
  }
}

TEST_P(TileOrders, WithinASection_TilesGoOneWay) {
  const TileOrder order = this->order();
  for (u32 i = 1; i < order.tiles(); ++i) {
    const QTile before = order.at(i - 1), at = order.at(i);
    ASSERT_GE(at.head / order.head_group, before.head / order.head_group) << "index " << i;
    if (at.head / order.head_group != before.head / order.head_group) continue;
    if (order.longest_first) {
      EXPECT_LE(at.tile, before.tile) << "index " << i;
    } else {
      EXPECT_GE(at.tile, before.tile) << "index " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sections, TileOrders,
                         testing::Combine(testing::Values(1u, 2u, 3u, 7u), testing::Bool()),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "_longest_first" : "_in_order");
                         });

}  // namespace
}  // namespace fa3::sm90
