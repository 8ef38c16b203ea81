// SPDX-License-Identifier: BSD-3-Clause
// work.h — a forward kernel's unit of work, one Q tile of one head of one sequence: how a scheduler
// hands it to producers and consumers through shared memory.
#pragma once

#include "device/attn/tile_range.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/types.h"
#include "device/warp/element.h"

namespace fa3::sm90 {

// A Q tile and the KV tiles that it visits.
struct FwdWork {
  TileRange range;
  i32 tile;  // −1: no work is left
  i32 head, batch;
  i32 q_begin, q_rows, q_used;
  i32 kv_begin, kv_used;
};

// The same in shared memory, the KV tiles of each consumer's 64 rows, and the head's sink, −∞ where
// there is none.
struct FwdSharedWork {
  static constexpr int kWords = sizeof(FwdWork) / sizeof(i32);
  static constexpr int kRangeWords = sizeof(TileRange) / sizeof(i32);
  static constexpr int kTileWord = kRangeWords;
  static constexpr int kBatchWord = 6, kKvBeginWord = 10, kKvUsedWord = 11;
  i32 word[kWords];
  i32 wg_range[3][kRangeWords];
  float sink;

  FA3_DEV bool is_tile() const { return ptx::ld_shared(&word[kTileWord]) >= 0; }

  FA3_DEV FwdWork read() const {
    ptx::Words<kWords> words;
    FA3_UNROLL
    for (int i = 0; i < kWords; ++i) words.word[i] = ptx::ld_shared(&word[i]);
    return ptx::bits_as<FwdWork>(words);
  }
};

// A consumer's lanes read the range and the Q tile word by word (Consumer::look_ahead).
static_assert(
    [] {
      const auto words = ptx::bits_as<ptx::Words<FwdSharedWork::kWords>>(
          FwdWork{{0, 1, 2, 3}, 4, 5, 6, 7, 8, 9, 10, 11});  // batch 6, kv_begin 10, kv_used 11
      for (int i = 0; i < FwdSharedWork::kWords; ++i) {
        if (words.word[i] != i) return false;
      }
      return FwdSharedWork::kRangeWords == 4 && FwdSharedWork::kTileWord == 4;
    }(),
    "FwdWork: words 0 to 3 are the range {first, unmasked_first, unmasked_end, end}, word 4 is the "
    "Q tile");

// Where functors find what belongs to a Q tile's rows and keys. Args has q_axis and kv_axis.
template <class Args>
FA3_DEV ElementPlace place_of(const Args& args, const FwdWork& work) {
  return {work.batch,
          work.head,
          args.q_axis.cu_seqlens != nullptr ? work.q_begin : 0,
          args.kv_axis.cu_seqlens != nullptr ? work.kv_begin : 0,
          work.q_used,
          work.kv_used};
}

}  // namespace fa3::sm90
