// SPDX-License-Identifier: BSD-3-Clause
// sequence_ids_test.cpp — which KV tiles the queries of a Q tile visit for their ids, as a warp
// finds them, against a loop over all keys of each tile.
#include "device/warp/sequence_ids.h"

#include <algorithm>
#include <array>
#include <limits>
#include <random>
#include <vector>

#include "sim/kit.h"

namespace fa3::sim {
namespace {

struct ScanArgs {
  ElementArgs elements;
  ElementPlace place;
  TileRange range;
  i32 row;
  TileRange* found;  // of each lane
};

template <int kTileKv, int kRows>
void scan(const ScanArgs args) {
  const TileRange found =
      SequenceIdMask::tiles<kTileKv>(args.elements, args.place, args.range, args.row, kRows);
  ptx::st_global(args.found + ptx::lane_index(), found);
}

// A tile is visited when it lies between the first and the last that has an id in [lo, hi], and
// unmasked when it belongs to the first run of those with no other.
TileRange expected(const std::vector<i32>& queries, const std::vector<i32>& keys, TileRange range,
                   i32 tile_kv) {
  if (range.empty()) return range;
  const i32 lo = *std::min_element(queries.begin(), queries.end());
  const i32 hi = *std::max_element(queries.begin(), queries.end());
  std::vector<i32> visited, unmasked;
  for (i32 tile = range.first; tile < range.end; ++tile) {
    const auto begin = keys.begin() + tile * tile_kv;
    const auto end = keys.begin() + std::min<i64>((tile + 1) * tile_kv, std::ssize(keys));
    if (std::any_of(begin, end, [&](i32 id) { return lo <= id && id <= hi; }))
      visited.push_back(tile);
    const bool in_run = unmasked.empty() || unmasked.back() == tile - 1;
    if (range.unmasked_first <= tile && tile < range.unmasked_end && in_run &&
        std::all_of(begin, end, [&](i32 id) { return id == lo && id == hi; }))
      unmasked.push_back(tile);
  }
  if (visited.empty()) return {};
  TileRange found{visited.front(), visited.front(), visited.front(), visited.back() + 1};
  if (!unmasked.empty())
    found.unmasked_first = unmasked.front(), found.unmasked_end = unmasked.back() + 1;
  return found;
}

std::array<i32, 4> fields(const TileRange& range) {
  return {range.first, range.unmasked_first, range.unmasked_end, range.end};
}

class Draw {
 public:
  i32 between(i32 least, i32 most) {
    return std::uniform_int_distribution<i32>(least, most)(random_);
  }

  // Documents in order, out of order, scattered ids, one id with few others, or extreme ones.
  std::vector<i32> ids(size_t count, i32 kind) {
    std::vector<i32> ids(count, 3);
    for (size_t i = 0, end = 0; i < count; i = end) {
      const i32 id = kind == 0 ? ids[i > 0 ? i - 1 : 0] + 1 : between(-2, 5);
      end = std::min(count, i + static_cast<size_t>(kind == 2 ? 1 : between(1, 700)));
      if (kind < 3) std::fill(ids.begin() + i, ids.begin() + end, id);
    }
    const i32 others[] = {std::numeric_limits<i32>::min(), std::numeric_limits<i32>::max(), -1, 4};
    if (kind > 3 && count > 0) {
      for (i32 i = between(0, 3); i > 0; --i) ids[draw_index(count)] = others[between(0, 3)];
    }
    return ids;
  }

  // Of a window: none, or some keys.
  i32 bound() { return between(0, 2) == 0 ? between(0, 900) : Band32::kUnbounded; }

 private:
  size_t draw_index(size_t count) { return static_cast<size_t>(between(0, i32(count) - 1)); }

  std::mt19937 random_{1};
};

// Tensors that end with the sequence's last row: a load beyond it is a violation.
template <int kTileKv, int kRows>
void expect_tiles(Draw& draw, i32 most_tiles) {
  i32 kv = draw.between(1, most_tiles * kTileKv);
  if (draw.between(0, 3) == 0) kv = (kv + kTileKv - 1) / kTileKv * kTileKv;
  const i32 q = draw.between(1, 3 * kRows);
  const i32 kind = draw.between(0, 4);
  const std::vector<i32> keys = draw.ids(static_cast<size_t>(kv), kind);
  std::vector<i32> queries = draw.ids(static_cast<size_t>(q), kind);
  // Queries of the keys' own ids: else few tiles would be unmasked.
  if (draw.between(0, 1) == 0) std::fill(queries.begin(), queries.end(), keys[keys.size() / 2]);

  ScanArgs args{};
  args.place = {1, 0, draw.between(0, 5), draw.between(0, 5), q, kv};
  args.elements.id_q_batch = draw.between(0, 9), args.elements.id_kv_batch = draw.between(0, 9);
  args.row = draw.between(0, (q - 1) / kRows) * kRows;
  args.range = tile_range(WholeBand32{draw.bound(), draw.bound()}, q, kv, args.row, kRows, kTileKv);
  Device device;
  const auto placed = [](Array<i32>& array, const std::vector<i32>& ids) {
    std::copy(ids.begin(), ids.end(), array.data() + array.size() - ids.size());
    return array.data();
  };
  Array<i32> ids_q(device, "ids_q", args.elements.id_q_batch + args.place.q_begin + q, true);
  Array<i32> ids_kv(device, "ids_kv", args.elements.id_kv_batch + args.place.kv_begin + kv, true);
  Array<TileRange> found(device, "found", 32);
  args.elements.ids_q = placed(ids_q, queries);
  args.elements.ids_kv = placed(ids_kv, keys);
  args.found = found.data();
  const auto violation = violation_of(device, &scan<kTileKv, kRows>, {{1, 1, 1}, 32, 0}, args);
  ASSERT_FALSE(violation) << violation->what();

  const std::vector<i32> rows(queries.begin() + args.row,
                              queries.begin() + std::min(args.row + kRows, q));
  const auto want = fields(expected(rows, keys, args.range, kTileKv));
  for (size_t lane = 0; lane < 32; ++lane)
    ASSERT_EQ(fields(found[lane]), want) << "lane " << lane << ", kind " << kind << ", keys " << kv;
}

template <int kTileKv, int kRows>
void expect_tiles() {
  Draw draw;
  for (u64 i = 0; i < some_of(500); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    expect_tiles<kTileKv, kRows>(draw, i % 4 == 0 ? 40 : 12);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Tiles of 128 keys are those of most rows; 48 and 80 are no multiples of 32.
TEST(SimSequenceIds, TilesOf128Keys) { expect_tiles<128, 128>(); }
TEST(SimSequenceIds, TilesOf64Keys_64Queries) { expect_tiles<64, 64>(); }
TEST(SimSequenceIds, TilesOf48Keys) { expect_tiles<48, 128>(); }
TEST(SimSequenceIds, TilesOf80Keys) { expect_tiles<80, 128>(); }

}  // namespace
}  // namespace fa3::sim
