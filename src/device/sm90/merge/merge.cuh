// SPDX-License-Identifier: BSD-3-Clause
// merge.cuh — fa3_combine: O and LSE of all keys from those of parts of them. It reads each part
// once and is bound by memory.
// CONTRACT  any strides and addresses of whole elements. What a part without keys has for O is
//           never looked at. A row's bits depend on its parts, their types and its columns alone.
// ROLES     16 lanes have a piece of a row, 64 or 128 columns; they exchange nothing.
// GRID      x: pieces of a batch entry, those of a row and then heads innermost · y: batch entries
#pragma once

#include "device/hopper/operand.h"
#include "device/ptx/convert.h"
#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/sm90/merge/args.h"
#include "device/sm90/merge/config.h"
#include "device/warp/merge.h"

namespace fa3::sm90 {

// A lane's columns of a piece, from `column` of the row on.
template <MergeConfig kCfg, bool kWide>
struct MergeLane {
  static constexpr int kColumns = kCfg.lane_columns(), kFours = kColumns / 4;
  static constexpr u32 kParts = MergeConfig::kParts;
  using Four = ptx::Vec<float, 4>;
  using Word = ptx::Vec<u32, 4>;  // the lane's columns in memory
  static constexpr bool kF32 = kCfg.parts == FloatType::kF32;

  const MergeArgs& args;
  i32 column;

  // The columns of a part's row at that element.
  FA3_DEV Word load(i64 element) const {
    if constexpr (kWide) {
      const u8* const from = static_cast<const u8*>(args.o_parts.data);
      return ptx::ld_global(reinterpret_cast<const Word*>(from + element * size_of(kCfg.parts)));
    } else {
      Word word{};
      FA3_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        if (column + c >= args.head_dim) continue;
        if constexpr (kF32) {
          word[c] = ptx::ld_global(static_cast<const u32*>(args.o_parts.data) + element + c);
        } else {
          const u32 half = ptx::ld_global(static_cast<const u16*>(args.o_parts.data) + element + c);
          word[c / 2] |= half << (16 * (c % 2));
        }
      }
      return word;
    }
  }
  FA3_DEV static float value(const Word& word, int c) {
    if constexpr (kF32) {
      return ptx::bits_as<float>(word[c]);
    } else {
      const auto half = static_cast<u16>(word[c / 2] >> (16 * (c % 2)));
      return kCfg.parts == FloatType::kF16 ? ptx::f16_to_f32(half) : ptx::bf16_to_f32(half);
    }
  }

  // Adds parts [begin, begin + kParts), as far as there are, of the row at these elements. Their
  // places are products: as sums, one after another, they would take twice the registers.
  FA3_DEV void add(i32 begin, i64 o_at, i64 lse_at, Four (&o)[kFours], float& most,
                   float& sum) const {
    Word word[kParts];
    float lse[kParts];
    FA3_UNROLL
    for (u32 u = 0; u < kParts; ++u) {
      const i64 part = begin + static_cast<i32>(u);
      lse[u] = -kInf;
      word[u] = Word{};
      if (part >= args.parts) continue;
      lse[u] = ptx::ld_global(args.lse_parts.data + lse_at + part * args.lse_parts.part);
      word[u] = load(o_at + part * args.o_parts.part);
    }
    Four x[kParts][kFours];
    FA3_UNROLL
    for (u32 u = 0; u < kParts; ++u) {
      const bool hidden = lse[u] == -kInf;  // and a weight of 0 would let NaN through
      FA3_UNROLL
      for (int c = 0; c < kColumns; ++c) x[u][c / 4][c % 4] = hidden ? 0.f : value(word[u], c);
    }
    merge_parts(o, most, sum, lse, x);
  }

  FA3_DEV void store(i64 element, const Four (&o)[kFours]) const {
    constexpr MmaType kType = kCfg.o == FloatType::kF16 ? MmaType::kF16 : MmaType::kBf16;
    if constexpr (kCfg.o == FloatType::kF32) {
      float* const to = static_cast<float*>(args.o.data) + element;
      if constexpr (kWide) {
        FA3_UNROLL
        for (int c = 0; c < kFours; ++c) ptx::st_global(reinterpret_cast<Four*>(to) + c, o[c]);
      } else {
        each_column([&](int c) { ptx::st_global(to + c, o[c / 4][c % 4]); });
      }
    } else {
      u16* const to = static_cast<u16*>(args.o.data) + element;
      if constexpr (kWide) {
        ptx::Vec<u32, 2 * kFours> packed;
        FA3_UNROLL
        for (int c = 0; c < 2 * kFours; ++c)
          packed[c] = pack16<kType>(o[c / 2][2 * (c % 2)], o[c / 2][2 * (c % 2) + 1]);
        ptx::st_global(reinterpret_cast<ptx::Vec<u32, 2 * kFours>*>(to), packed);
      } else {
        each_column([&](int c) {
          ptx::st_global(to + c, static_cast<u16>(pack16<kType>(o[c / 4][c % 4], 0.f)));
        });
      }
    }
  }

  // Row i of head h of batch entry b.
  FA3_DEV void merge(i64 b, i64 i, i64 h) const {
    const auto at = [&](const auto& t) { return b * t.batch + i * t.row + h * t.head; };
    const i64 o_at = at(args.o_parts) + column, lse_at = at(args.lse_parts);
    Four o[kFours] = {};
    float most = -kInf, sum = 0;
    FA3_NO_UNROLL
    for (i32 begin = 0; begin < args.parts; begin += MergeConfig::kParts)
      add(begin, o_at, lse_at, o, most, sum);
    const bool nothing = most == -kInf;
    const float sink = args.sinks.of_head(static_cast<i32>(h));
    const float grown = ptx::max_nan(most, sink);  // the sink is one part more, whose O is 0
    const float scale = nothing ? 0.f : exp_below(most - grown);
    sum = ptx::fma(sum, scale, merge_weight(sink, grown));
    const float inverse = nothing ? 0.f : scale * ptx::rcp(sum);
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c) o[c / 4][c % 4] *= inverse;
    store(at(args.o) + column, o);
    if (column == 0 && args.lse.data != nullptr)
      ptx::st_global(args.lse.data + at(args.lse), ptx::fma(ptx::lg2(sum), kLn2, grown));
  }

 private:
  // exp(x) where all weights have this factor: the product with log₂e, rounded, would be off by as
  // much as x is large.
  FA3_DEV static float exp_below(float x) {
    constexpr float kLog2eLow = 1.9259630e-8f, kNothing = -1000;
    x = ptx::max_nan(x, kNothing);
    const float product = x * kLog2e, rest = ptx::fma(x, kLog2e, -product);
    const float exp = ptx::ex2(product);
    return ptx::fma(exp, ptx::fma(x, kLog2eLow, rest) * kLn2, exp);
  }

  template <class F>
  FA3_DEV void each_column(const F& f) const {
    FA3_UNROLL
    for (int c = 0; c < kColumns; ++c)
      if (column + c < args.head_dim) f(c);
  }
};

template <MergeConfig kCfg, bool kWide>
FA3_DEV void merge_piece(const MergeArgs& args, u32 piece) {
  const u32 of_row = piece % args.row_pieces, place = piece / args.row_pieces;
  const auto heads = static_cast<u32>(args.heads);
  const u32 lane = ptx::thread_index() % MergeConfig::kLanes;
  const MergeLane<kCfg, kWide> columns{
      args, static_cast<i32>(of_row * kCfg.columns() + lane * kCfg.lane_columns())};
  if (columns.column >= args.head_dim) return;
  FA3_NO_UNROLL
  for (u32 b = ptx::block_index_y(); b < static_cast<u32>(args.batch); b += ptx::grid_dim_y())
    columns.merge(b, place / heads, place % heads);
}

template <MergeConfig kCfg>
FA3_KERNEL(MergeConfig::kThreads)
void merge(FA3_GRID_CONSTANT const MergeArgs args) {
  ptx::pdl_launch();
  ptx::pdl_wait();
  const u32 piece =
      ptx::block_index_x() * MergeConfig::kPieces + ptx::thread_index() / MergeConfig::kLanes;
  if (piece >= args.pieces) return;
  if (args.wide) {
    merge_piece<kCfg, true>(args, piece);
  } else {
    merge_piece<kCfg, false>(args, piece);
  }
}

}  // namespace fa3::sm90
