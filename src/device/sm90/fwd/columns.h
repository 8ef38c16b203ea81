// SPDX-License-Identifier: BSD-3-Clause
// columns.h — a KV tile where scales change along head_dim: Q·Kᵀ comes in parts of columns, each
// multiplied by its scales in FP32 before it is added to S; so does P·V, added to O. One GEMM after
// the other, which other consumers' work overlaps with.
#pragma once

#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/ptx/math.h"
#include "device/ptx/memory.h"
#include "device/ptx/registers.h"
#include "device/sm90/fwd/scales.h"
#include "device/types.h"
#include "device/warp/fragment.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

struct ByColumns {
  template <class Consumer>
  FA3_DEV void attend(Consumer& c) {
    c.template for_kv_tiles<true>(c.visit.own.end - 1,
                                  [&](i32 kv_tile, auto masked) { step(c, kv_tile, masked); });
    c.release_q();
    c.finish_rows();
    c.look_early();
  }

 private:
  template <class Consumer, class M>
  FA3_DEV static void step(Consumer& c, i32 kv_tile, M masked) {
    typename Consumer::Scores::P s;
    c.smem.k_full[c.k.stage].wait(c.k.phase);
    multiply_qk(c, s, kv_tile);
    c.release_k();
    const RowScale rescale = c.softmax_tile(kv_tile, s, s, masked);
    rescale_rows<Consumer::kConfig.scores.softmax>(c.pv.o, rescale);
    c.smem.v_full[c.v.stage].wait(c.v.phase);
    if constexpr (Consumer::kConfig.types.v8()) {
      add_pv(c, s, kv_tile);
    } else {
      c.pv.round(c.pv.operand, s);
      c.pv.issue(c);
      gemm_wait<0>(c.pv.o);
    }
    c.release_v();
  }

  // S, as numbers. K's stage is reusable afterwards.
  template <class Consumer>
  FA3_DEV static void multiply_qk(Consumer& c, typename Consumer::Scores::P& s, i32 kv_tile) {
    constexpr FwdConfig kCfg = Consumer::kConfig;
    constexpr int kStep = kCfg.types.qk_step(), kSteps = kCfg.scores.scale_columns / kStep;
    const auto q = c.q_tile();
    const auto k = c.k_tile();
    FA3_UNROLL
    for (int column = 0; column < kCfg.tile.head_dim_qk; column += kCfg.scores.scale_columns) {
      const auto step = static_cast<u32>(column / kStep);
      typename Consumer::Scores::Acc part;
      gemm_ss<kCfg.types.qk, kSteps>(part, q.from_step(step), k.from_step(step), kOverwrite);
      const PerRow of_q = c.scores.scales.of_rows(c.args, column);
      const auto add = [&](int i, float of_k) {
        const float value = value_of(part[i]) * (of_q[i / 2 % 2] * of_k);
        s[i] = column == 0 ? value : s[i] + value;
      };
      if constexpr (kCfg.scores.kv_scales == KvScales::kTiles) {
        const float of_k = c.scores.scales.of_tile(c.args.k_scale, c.args.k_columns,
                                                   c.scores.scales.k, kv_tile, column);
        gemm_wait<0>(part);
        FA3_UNROLL
        for (int i = 0; i < kCfg.tile.kv / 2; ++i) add(i, of_k);
      } else {
        const auto of_keys = c.scores.scales.of_keys(c.args.k_scale, c.args.k_columns,
                                                     c.scores.scales.k, kv_tile, column);
        gemm_wait<0>(part);
        of_keys.for_columns([&](int i, float of_k) { add(i, of_k), add(i + 2, of_k); });
      }
    }
  }

  // O += P·V.
  template <class Consumer>
  FA3_DEV static void add_pv(Consumer& c, const typename Consumer::Scores::P& p, i32 kv_tile) {
    constexpr FwdConfig kCfg = Consumer::kConfig;
    const auto v = c.v_tile();
    if constexpr (kCfg.scores.kv_scales == KvScales::kTiles) c.pv.round(c.pv.operand, p);
    FA3_UNROLL
    for (int column = 0; column < kCfg.tile.head_dim_v; column += kCfg.accumulate.flush_columns) {
      const PerRow of_v = scale_p(c, p, kv_tile, column);
      ptx::Acc<kCfg.accumulate.flush_columns> part;
      gemm_rs<kCfg.types.v>(part, c.pv.operand, v.from_row(static_cast<u32>(column)), kOverwrite);
      gemm_wait<0>(part);
      FA3_UNROLL
      for (int i = 0; i < kCfg.accumulate.flush_columns / 2; ++i) {
        float& o = c.pv.o[column / 2 + i];
        o = ptx::fma(part[i], of_v[i / 2 % 2], o);
      }
    }
  }

  // What P·V of those columns is multiplied by. Where scales change within a tile, P as an operand
  // has them.
  template <class Consumer>
  FA3_DEV static PerRow scale_p(Consumer& c, const typename Consumer::Scores::P& p, i32 kv_tile,
                                int column) {
    const FwdScale& scale = c.args.v_scale;
    const FwdColumns& columns = c.args.v_columns;
    if constexpr (Consumer::kConfig.scores.kv_scales == KvScales::kTiles) {
      const float of_tile =
          c.scores.scales.of_tile(scale, columns, c.scores.scales.v, kv_tile, column);
      return {{of_tile, of_tile}};
    } else {
      typename Consumer::Scores::P scaled;
      const PerRow inverse =
          c.scores.scales.of_keys(scale, columns, c.scores.scales.v, kv_tile, column)
              .scale_p(scaled, p);
      c.pv.round(c.pv.operand, scaled);
      return inverse;
    }
  }

  FA3_DEV static float value_of(float score) { return score; }
  FA3_DEV static float value_of(i32 score) { return number_of(score) - kScoreBias; }
};

}  // namespace fa3::sm90
