// SPDX-License-Identifier: BSD-3-Clause
// smem.h — shared memory of the decode kernel; decode.cuh has the table of its barriers.
#pragma once

#include "device/hopper/barrier.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/ptx/smem.h"
#include "device/ptx/vec.h"
#include "device/sm90/common/kv_runs.h"
#include "device/sm90/decode/config.h"

namespace fa3::sm90 {

// A packed row of the tile.
struct DecodeRow {
  i32 lo, hi;    // the keys that it sees; none where lo = hi
  float slope;   // negated, in the units of scores
  i32 position;  // of its query among the keys
  i32 query;     // of the sequence; −1: the row does not exist
  i32 head;
};

// The same in shared memory.
struct DecodeSharedRow {
  static constexpr int kWords = sizeof(DecodeRow) / sizeof(i32);
  i32 word[kWords];

  FA3_DEV void write(const DecodeRow& row) {
    const auto words = ptx::bits_as<ptx::Words<kWords>>(row);
    FA3_UNROLL
    for (int i = 0; i < kWords; ++i) ptx::st_shared(&word[i], words.word[i]);
  }
  FA3_DEV DecodeRow read() const {
    ptx::Words<kWords> words;
    FA3_UNROLL
    for (int i = 0; i < kWords; ++i) words.word[i] = ptx::ld_shared(&word[i]);
    return ptx::bits_as<DecodeRow>(words);
  }
};

// Of a consumer, which has some of the packed rows; tiles as TileLayout says.
template <DecodeConfig kCfg>
struct DecodeConsumerSmem;

template <DecodeConfig kCfg>
requires(kCfg.wide) struct alignas(1024) DecodeConsumerSmem<kCfg> {
  u8 q[kCfg.q_tile().bytes()];
  FA3_NAMED(q)
};

template <DecodeConfig kCfg>
requires(!kCfg.wide) struct alignas(1024) DecodeConsumerSmem<kCfg> {
  static constexpr int kRows = kCfg.consumer_rows();

  u8 q[kCfg.q_tile().bytes()];
  // [8 keys][8 rows][row][key], and when all GEMMs have read it the second half of O.
  alignas(128) u8 p[kCfg.q_p_o_bytes() - kCfg.q_tile().bytes()];
  DecodeSharedRow row[kRows];
  alignas(8) i64 to[kRows];                   // where rows of O go, in elements; −1: nowhere
  float number[DecodeConfig::kWarps][kRows];  // what warps exchange: maxima, sums; factors of O
  float most[kRows];                          // the greatest score
  // What scores of E4M3 keys are multiplied by: for scales of codes, and for Q in F16.
  float of_codes[kCfg.kv8 ? kRows : 1], of_q[kCfg.kv8 ? kRows : 1];
  FA3_NAMED(q, p, row, to, number, most, of_codes, of_q)

  // O, (row, column), in the place of Q and P.
  FA3_DEV float* o() { return reinterpret_cast<float*>(q); }
  // What normalises rows of O, in the place of numbers; clusters: and LSE.
  FA3_DEV float* factor() { return number[0]; }
  FA3_DEV float* lse() { return number[1]; }
  // Of consumers that take turns: what O is multiplied by before it is added to the others'.
  FA3_DEV float* weight() { return number[2]; }
};

template <DecodeConfig kCfg>
struct DecodeSmem {
  static constexpr int kStages = kCfg.stages;

  alignas(1024) u8 k[kStages][kCfg.k_tile().bytes()];
  alignas(1024) u8 v[kStages][kCfg.v_tile().bytes()];
  DecodeConsumerSmem<kCfg> consumer[kCfg.consumers];
  Barrier k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  i32 hides[kStages];  // whether the tile may have keys of pages that do not exist
  FA3_NAMED(k, v, consumer, k_full, k_empty, v_full, v_empty, hides)

  FA3_DEV bool hides_keys(u32 stage) const {
    if constexpr (kCfg.cached()) return ptx::ld_shared(&hides[stage]) != 0;
    return false;
  }
  FA3_DEV void init_barriers() {
    constexpr u32 kFull = kv_arrivals(kCfg.kv), kEmpty = kCfg.in_turns ? 1 : kCfg.consumers;
    for (int s = 0; s < kStages; ++s)
      k_full[s].init(kFull), k_empty[s].init(kEmpty), v_full[s].init(kFull),
          v_empty[s].init(kEmpty);
  }
};

}  // namespace fa3::sm90
