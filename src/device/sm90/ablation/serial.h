// SPDX-License-Identifier: BSD-3-Clause
// serial.h — one GEMM after the other, nothing overlaps within a consumer: the paper's algorithm 1.
#pragma once

#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/types.h"
#include "device/warp/softmax.h"

namespace fa3::sm90 {

struct Serial {
  template <class Consumer>
  FA3_DEV void attend(Consumer& c) {
    c.template for_kv_tiles<true>(c.visit.own.end - 1, [&](i32 kv_tile, auto masked) {
      step<decltype(masked)::kMasked>(c, kv_tile);
    });
    c.release_q();
    c.tile.softmax.finish();
    c.look_ahead();
  }

 private:
  template <bool kMasked, class Consumer>
  FA3_DEV static void step(Consumer& c, i32 kv_tile) {
    c.smem.k_full[c.k.stage].wait(c.k.phase);
    c.turn.wait();
    c.issue_qk(c.s_acc);
    c.turn.pass();
    gemm_wait<0>(c.s_acc);
    c.release_k();
    const RowScale rescale = c.template softmax_tile<kMasked>(kv_tile, c.s_acc, c.s_acc);
    rescale_rows<Consumer::kConfig.softmax>(c.o_acc, rescale);
    c.round_p(c.p_frag, c.s_acc);
    c.smem.v_full[c.v.stage].wait(c.v.phase);
    c.issue_pv();
    gemm_wait<0>(c.o_acc);
    c.release_v();
  }
};

}  // namespace fa3::sm90
