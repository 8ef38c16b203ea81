// SPDX-License-Identifier: BSD-3-Clause
// score_offset.cuh — what the means that were taken off K would add to all scores of a query:
// softmax_scale · q·k_offset. Softmax does not notice, but LSE and a softcap do.
// CONTRACT  written for every row that counts, and for no other. cu_seqlens and seqused may hold
//           anything.
// GRID      x: as many as divide the rows of a sequence · y: query heads · z: sequences
#pragma once

#include "device/ptx/convert.h"
#include "device/ptx/grid.h"
#include "device/ptx/thread.h"
#include "device/sm90/fwd/scales.h"
#include "device/sm90/fwd/score_offset_args.h"
#include "device/sm90/fwd/score_offset_config.h"
#include "device/warp/sequence_rows.h"

namespace fa3::sm90 {

// Four codes in a word.
template <bool kIsI8>
FA3_DEV void decode_codes(u32 word, float* to) {
  if constexpr (kIsI8) {
    FA3_UNROLL
    for (int i = 0; i < 4; ++i)
      to[i] = static_cast<float>(static_cast<i32>(word << (24 - 8 * i)) >> 24);
  } else {
    FA3_UNROLL
    for (int i = 0; i < 2; ++i) {
      const u32 two = ptx::e4m3x2_to_f16x2(static_cast<u16>(word >> (16 * i)));
      to[2 * i] = ptx::f16_to_f32(static_cast<u16>(two));
      to[2 * i + 1] = ptx::f16_to_f32(static_cast<u16>(two >> 16));
    }
  }
}

template <ScoreOffsetConfig kCfg>
FA3_KERNEL(ScoreOffsetConfig::kThreads)
void score_offset(FA3_GRID_CONSTANT const ScoreOffsetArgs args) {
  constexpr int kPiece = ScoreOffsetConfig::kPiece;
  ptx::pdl_launch();
  ptx::pdl_wait();
  FwdWork work{};
  work.head = static_cast<i32>(ptx::block_index_y());
  work.batch = static_cast<i32>(ptx::block_index_z());
  const SequenceRows rows = rows_of<true>(args.q_axis, args.batch, work.batch);
  const i32 thread = static_cast<i32>(ptx::thread_index());
  const i32 column = thread % kCfg.lanes * kPiece;
  const bool has_columns = column < args.head_dim;
  float offset[kPiece] = {};
  if (has_columns) {
    const float* const from = args.k_offset + work.batch * args.k_offset_batch +
                              work.head / args.group_size * args.k_offset_head + column;
    FA3_UNROLL
    for (int c = 0; c < kPiece; ++c) offset[c] = ptx::ld_global(from + c);
  }
  const i32 step = static_cast<i32>(ptx::grid_dim_x()) * kCfg.rows();
  for (i32 first = static_cast<i32>(ptx::block_index_x()) * kCfg.rows(); first < rows.used;
       first += step) {
    const i32 i = first + thread / kCfg.lanes;
    float sum = 0;
    if (i < rows.used && has_columns) {
      const u8* const from = args.q + work.batch * args.q_batch +
                             (i64{rows.begin} + i) * args.q_row + work.head * args.q_head + column;
      const auto words = ptx::ld_global(reinterpret_cast<const ptx::Vec<u32, 4>*>(from));
      FA3_UNROLL
      for (int w = 0; w < 4; ++w) {
        float codes[4];
        decode_codes<kCfg.is_i8>(words[w], codes);
        FA3_UNROLL
        for (int c = 0; c < 4; ++c) sum = ptx::fma(codes[c], offset[4 * w + c], sum);
      }
      sum *= scale_at(args.q_scale, work, rows.begin, i, column_block(args.q_columns, column));
    }
    FA3_UNROLL
    for (int m = 1; m < kCfg.lanes; m *= 2) sum += ptx::shfl_xor(sum, static_cast<u32>(m));
    if (column != 0 || i >= rows.used) continue;
    const i64 to = work.batch * args.to_batch + work.head * args.to_head + rows.begin + i;
    ptx::st_global(args.to + to, sum * args.softmax_scale);
  }
}

}  // namespace fa3::sm90
