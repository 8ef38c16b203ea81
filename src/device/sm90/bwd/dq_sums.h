// SPDX-License-Identifier: BSD-3-Clause
// dq_sums.h — a consumer's part of dQ, handed to the dQ writers: FP32, or words of fixed point.
#pragma once

#include "device/ptx/atomic.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/sm90/bwd/fixed.h"
#include "device/sm90/bwd/weights.h"

namespace fa3::sm90 {

template <BwdConfig kCfg, class SmemOf = BwdSmem<kCfg>>
struct BwdDqSums : BwdWeights<kCfg, SmemOf> {
  using Base = BwdWeights<kCfg, SmemOf>;
  using Base::args, Base::smem, Base::wg, Base::thread;
  using Base::Base;
  using Base::kDqColumns, Base::kPieceFours;
  using typename Base::QRing, typename Base::DqAcc, typename Base::Two;

  // Of the thread's two rows of dQ.
  FA3_DEV Two load_scales(const QRing& ring) const {
    if constexpr (!kCfg.deterministic) return {};
    const u32 row = (kCfg.dq_by_rows() ? kWgRows * wg : 0) + fragment_row(thread);
    const u32 slot = ring.stage + ring.phase * static_cast<u32>(kCfg.q_stages());
    const float* const at = &smem.scales[slot][stats_place(static_cast<i32>(row))];
    return {{ptx::ld_shared(at), ptx::ld_shared(at + 2)}};
  }
  // To dQ writer `w` its piece of that turn: registers 4g … 4g + 3 of all threads lie side by side.
  // Deterministic, words of fixed point; returns their bits, combined by OR, for release_dq().
  FA3_DEV u32 put_dq(const Two& scales, const DqAcc& dq, u32 w, int turn = 0) const {
    const int piece = piece_of(w, turn);
    const float factors[2] = {fixed_factor(scales[0]), fixed_factor(scales[1])};
    u32 bits = 0;
    FA3_UNROLL
    for (int g = 0; g < kPieceFours; ++g) {
      ptx::Vec<u32, 4> words;
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float x = dq[4 * (kPieceFours * piece + g) + i];
        words[i] = ptx::bits_as<u32>(kCfg.deterministic ? to_fixed(x, factors[i / 2]) : x);
        bits |= words[i];
      }
      ptx::st_shared(own_dq(w) + kWgThreads * g, words);
    }
    return bits;
  }
  // Again, where some did not fit. What is not finite becomes bits beside the sums, and adds 0.
  FA3_DEV void put_large_dq(u32 w, int piece) const {
    const int first = kPieceFours * piece +
                      kDqColumns / 8 * static_cast<int>(kCfg.split() ? BwdCta<kCfg>::rank() : wg);
    FA3_NO_UNROLL
    for (int g = 0; g < kPieceFours; ++g) {
      ptx::Vec<u32, 4> words = ptx::ld_shared(own_dq(w) + kWgThreads * g);
      float not_finite = 0;
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) {
        const float x = ptx::bits_as<float>(words[i]);
        not_finite += x - x;
      }
      if (not_finite != 0) flag_non_finite(w, DqFlag::of<kCfg>(first + g, thread), words);
      FA3_UNROLL
      for (int i = 0; i < 4; ++i) words[i] = word_of_fixed(ptx::bits_as<float>(words[i]));
      ptx::st_shared(own_dq(w) + kWgThreads * g, words);
    }
  }
  FA3_DEV void flag_non_finite(u32 w, const DqFlag& flag, ptx::Vec<u32, 4>& words) const {
    u32* const flags =
        args.dq_flag + ptx::ld_shared(&smem.dq_tile[w]) * kCfg.dq_flags() + flag.word;
    FA3_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float x = ptx::bits_as<float>(words[i]);
      if (x - x == 0) continue;
      if (!(x < 0)) ptx::red_or_b32(flags, 1u << flag.bit << i);
      if (!(x > 0)) ptx::red_or_b32(flags + kWgThreads, 1u << flag.bit << i);
      words[i] = ptx::bits_as<u32>(kFixedZero);
    }
  }
  FA3_DEV static int piece_of(u32 w, int turn) {
    return kCfg.split() ? static_cast<int>(w) + kCfg.consumer_wgs * turn : 0;
  }
  FA3_DEV ptx::Vec<u32, 4>* own_dq(u32 w) const {
    return reinterpret_cast<ptx::Vec<u32, 4>*>(smem.dq[w]) + thread;
  }
  // Puts again what did not fit: here and not in put_dq(), so that a GEMM can be issued between.
  FA3_DEV void release_dq(u32 bits, u32 w, int turn = 0) const {
    if (kCfg.deterministic && ptx::any(!fixed_fits(bits))) put_large_dq(w, piece_of(w, turn));
    ptx::fence_proxy_async_shared();
    dq_full(w).arrive();
  }
};

}  // namespace fa3::sm90
