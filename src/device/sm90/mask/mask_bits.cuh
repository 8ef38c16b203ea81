// SPDX-License-Identifier: BSD-3-Clause
// mask_bits.cuh — before attention with attn_mask: a bit for each element that shows its key, and
// which tiles hide all keys, some or none, or change scores (warp/mask_tensor.h).
// CONTRACT  reads no element beyond the extents, and writes the word of every key that exists.
//           Attention reads whole tiles, up to 3 words further; the band masks those keys, and the
//           tiles, which lie behind the bits, keep the reads in the workspace.
// GRID      x: groups of 32 KV tiles of Q tiles of heads of batch entries, the first fastest
#pragma once

#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"
#include "device/sm90/mask/args.h"
#include "device/sm90/mask/config.h"

namespace fa3::sm90 {

// Each warp's findings of each tile: MaskTiles's bits.
struct MaskBitsSmem {
  u32 found[MaskBitsConfig::kThreads / 32][MaskBitsConfig::kTiles];

  FA3_NAMED(found)
};
static_assert(sizeof(MaskBitsSmem) == MaskBitsConfig::kSmemBytes, "the launch has another size");

template <MaskBitsConfig kCfg>
struct MaskReader {
  static constexpr i32 kWarps = MaskBitsConfig::kThreads / 32, kWords = kCfg.tile_kv / 32;
  // A warp has every kWarps-th row of a tile, and several words of each in flight.
  static constexpr i32 kRows = (kCfg.tile_q + kWarps - 1) / kWarps;
  static constexpr i32 kWordsAtATime = kWords * kRows <= 16 ? kWords : kWords % 2 == 0 ? 2 : 1;
  static constexpr u32 kShown = 1, kHidden = 2, kAdded = 4;

  const MaskBitsArgs& args;
  i64 first_value;  // of the head's first row
  u32* bits;
  i32 first_row, rows, warp, lane;

  using Element = MaskElement<kCfg.type, kCfg.bf16>;
  using Value = typename Element::Type;

  // Is there an element of that row and key?
  FA3_DEV bool exists(i32 row, i32 key) const { return row < rows && key < args.keys; }
  FA3_DEV static bool shows(Value x) {
    if constexpr (kCfg.type == MaskTensor::kBool) {
      return x != 0;
    } else {
      return !(Element::value(x) == -kInf);
    }
  }
  FA3_DEV static bool adds(Value x) {
    if constexpr (kCfg.type == MaskTensor::kBool) {
      return false;
    } else {
      return !(Element::value(x) == 0);
    }
  }

  // All words of a KV tile that are this warp's; which bits are among them.
  FA3_DEV u32 tile(i32 kv_tile) const {
    u32 found = 0;
    FA3_NO_UNROLL
    for (i32 w = 0; w < kWords; w += kWordsAtATime) found |= words(kv_tile * kCfg.tile_kv + 32 * w);
    return found;
  }

 private:
  FA3_DEV u32 words(i32 key) const {
    const Value* const first = static_cast<const Value*>(args.mask.values) + first_value +
                               (i64{first_row} + warp) * args.mask.row +
                               i64{key + lane} * args.mask.step;
    Value values[kRows][kWordsAtATime];
    FA3_UNROLL
    for (i32 r = 0; r < kRows; ++r) {
      FA3_UNROLL
      for (i32 w = 0; w < kWordsAtATime; ++w)
        values[r][w] =
            ptx::ld_global_nc_if(first + kWarps * r * args.mask.row + 32 * w * args.mask.step,
                                 exists(warp + kWarps * r, key + 32 * w + lane));
    }
    u32 found = 0;
    FA3_UNROLL
    for (i32 r = 0; r < kRows; ++r) {
      FA3_UNROLL
      for (i32 w = 0; w < kWordsAtATime; ++w)
        found |= word(values[r][w], warp + kWarps * r, key + 32 * w);
    }
    return found;
  }
  // The word of 32 keys from `key` on, of whose elements this lane has one.
  FA3_DEV u32 word(Value value, i32 row, i32 key) const {
    const bool mine = exists(row, key + lane) && shows(value);
    const u32 shown = ptx::ballot(mine), added = ptx::ballot(mine && adds(value));
    if (!exists(row, key)) return 0;
    const u32 existing = args.keys - key < 32 ? ~(~0u << (args.keys - key)) : ~0u;
    if (lane == 0) ptx::st_global(bits + row * args.mask.bits_row + key / 32, shown);
    return (shown != 0 ? kShown : 0) | (shown != existing ? kHidden : 0) |
           (added != 0 ? kAdded : 0);
  }
};

template <MaskBitsConfig kCfg>
FA3_KERNEL(MaskBitsConfig::kThreads)
void mask_bits(FA3_GRID_CONSTANT const MaskBitsArgs args) {
  constexpr i32 kTiles = MaskBitsConfig::kTiles;
  ptx::pdl_launch();
  ptx::pdl_wait();
  i32 at = static_cast<i32>(ptx::block_index_x());
  const i32 group = at % args.groups;
  at /= args.groups;
  const i32 q_tile = at % args.q_tiles;
  at /= args.q_tiles;
  const i32 head = at % args.heads, batch = at / args.heads;
  const i32 thread = static_cast<i32>(ptx::thread_index());
  const i32 row = q_tile * kCfg.tile_q;
  const MaskTensorArgs& mask = args.mask;
  u32* const bits = const_cast<u32*>(mask.bits) + batch * mask.bits_batch + head * mask.bits_head +
                    row * mask.bits_row;
  const MaskReader<kCfg> reader{args,       batch * mask.batch + head * mask.head, bits,
                                row,        min(args.rows - row, kCfg.tile_q),     thread / 32,
                                thread % 32};
  auto& smem = ptx::smem_as<MaskBitsSmem>();
  FA3_NO_UNROLL
  for (i32 t = 0; t < kTiles; ++t) {
    const i32 kv_tile = kTiles * group + t;
    // The same for all keys: one word says it of all tiles.
    const bool reads = mask.step == 0 ? t == 0 : kv_tile * kCfg.tile_kv < args.keys;
    const u32 found = reads ? reader.tile(kv_tile) : 0;
    if (reader.lane == 0) ptx::st_shared(&smem.found[reader.warp][t], found);
  }
  ptx::cta_sync();
  if (reader.warp != 0) return;
  u32 found = 0;
  FA3_UNROLL
  for (i32 w = 0; w < MaskReader<kCfg>::kWarps; ++w)
    found |= ptx::ld_shared(&smem.found[w][mask.step == 0 ? 0 : reader.lane]);
  MaskTiles words{};
  FA3_UNROLL
  for (u32 i = 0; i < 3; ++i) words[i] = ptx::ballot((found >> i & 1) != 0);
  MaskTiles* const to = const_cast<MaskTiles*>(mask.tiles) + batch * mask.tiles_batch +
                        head * mask.tiles_head + q_tile * mask.tiles_q;
  if (reader.lane == 0) ptx::st_global(to + group, words);
}

}  // namespace fa3::sm90
