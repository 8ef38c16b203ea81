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
    c.template for_kv_tiles<true>(c.visit.own.end - 1,
                                  [&](i32 kv_tile, auto masked) { step(c, kv_tile, masked); });
    c.release_q();
    c.finish_rows();
    c.look_early();
  }

 private:
  template <class Consumer, class M>
  FA3_DEV static void step(Consumer& c, i32 kv_tile, M masked) {
    c.smem.k_full[c.k.stage].wait(c.k.phase);
    c.turn.wait();
    c.issue_qk(c.scores.acc);
    c.turn.pass();
    gemm_wait<0>(c.scores.acc);
    c.release_k();
    const RowScale rescale = c.softmax_tile(kv_tile, c.scores.acc, c.scores.acc, masked);
    rescale_rows<Consumer::kConfig.scores.softmax>(c.pv.o, rescale);
    c.pv.round(c.pv.operand, c.scores.acc);
    c.smem.v_full[c.v.stage].wait(c.v.phase);
    c.pv.issue(c);
    gemm_wait<0>(c.pv.o);
    c.release_v();
  }
};

}  // namespace fa3::sm90
