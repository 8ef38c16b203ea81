// SPDX-License-Identifier: BSD-3-Clause
// step.h — what a consumer does with a KV tile: S = Q·Kᵀ, softmax, O += P·V, the GEMMs overlapped
// with the softmax. ptxas keeps the order of a step only as it is written here; the compile tests
// check it in the machine code (docs/guide/fwd_schedule.md says why each line stands where it
// does).
#pragma once

#include "device/hopper/gemm.h"
#include "device/sm90/fwd/consumer.h"

namespace fa3::sm90 {

// Q·Kᵀ becomes S: score function, functors and mask.
template <FwdConfig kCfg, class Order, class F>
template <class S, class M>
FA3_DEV void Consumer<kCfg, Order, F>::apply_score(i32 kv_tile, S& s, M masked) {
  scores.apply(args, s);
  mask.to_units(args, s);
  scores.functor.apply(s, kCfg.tile.kv * kv_tile);
  mask.apply(*this, kv_tile, s, masked);
  missing.hide(*this, kv_tile, s, masked);
}

// S becomes P, unnormalised, in FP32, with its weights.
template <FwdConfig kCfg, class Order, class F>
template <class S, class P, class M>
FA3_DEV RowScale Consumer<kCfg, Order, F>::softmax_tile(i32 kv_tile, S& s, P& p, M masked) {
  apply_score(kv_tile, s, masked);
  const RowScale grown = tile.softmax.update(s, p, scores.scale_log2(args));
  weight.apply(kv_tile, p);
  return grown;
}

// The Q tile's first KV tile: there is no P·V yet that its S could overlap with.
template <FwdConfig kCfg, class Order, class F>
FA3_DEV void Consumer<kCfg, Order, F>::first_step(i32 kv_tile) {
  scores.scales.load(args);
  wait_kv<kCfg.load.kv>(smem.k_full[k.stage], k.phase);
  issue_qk(scores.acc);
  mask.prepare(*this, kv_tile, Masked<true>{});
  gemm_wait<0>(scores.acc);  // S readable, K's stage reusable
  release_k();
  auto& s = scores.s();
  auto& p = scores.p();
  missing.find(*this);
  apply_score(kv_tile, s, Masked<true>{});  // the tail: keys beyond the sequence
  tile.softmax.start(s, p, scores.scale_log2(args));
  weight.apply(kv_tile, p);
  scores.scales.scale_p(p);
  pv.round(pv.operand, p);
  rescale = {{1.f, 1.f}, false};  // O is 0
  pv.wait_first(*this, kv_tile);
}

// Softmax of this KV tile overlaps O += P·V of the previous one: P lags S by a tile.
template <FwdConfig kCfg, class Order, class F>
template <class M>
FA3_DEV void Consumer<kCfg, Order, F>::step(i32 kv_tile, M masked) {
  scores.scales.load(args);
  pv.wait_k(*this);  // V of the previous tile was waited for one step ago
  turn.wait();       // ping-pong: our slot on the tensor cores
  issue_qk(scores.acc);
  pv.issue(*this);
  turn.pass();
  mask.prepare(*this, kv_tile, masked);
  gemm_wait<1>(scores.acc);  // S readable, K's stage reusable; P·V still in flight
  release_k();
  auto& p = scores.p();
  rescale = softmax_tile(kv_tile, scores.s(), p, masked);  // p holds P now, in FP32
  pv.wait_ahead(*this, kv_tile);  // V of this tile; keeps the exponentials above the wait for P·V
  pv.take(*this, p);              // P·V complete, V's stage reusable; P is the next operand
  pv.rescale(rescale);            // O in units of the new maximum
}

template <FwdConfig kCfg, class Order, class F>
FA3_DEV void Consumer<kCfg, Order, F>::last_pv() {
  pv.issue(*this);
  look_early();   // overlapped with the GEMM,
  finish_rows();  // as the row sums
  pv.finish(*this);
}

}  // namespace fa3::sm90
