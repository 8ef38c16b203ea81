// SPDX-License-Identifier: BSD-3-Clause
// config.h — one variant of the forward kernel as a value: host data, cache key, test id and
// template argument at once. What follows from it (threads, shared memory, registers) is computed
// here, for host, device and simulator alike.
#pragma once

#include "device/attn/kinds.h"
#include "device/ptx/mma_types.h"
#include "device/tensor_map.h"
#include "device/types.h"
#include "device/warp/softmax_variant.h"

namespace fa3::sm90 {

// The order of a KV tile's two products and its softmax in a warpgroup.
enum class FwdStep : u8 {
  kSerial,     // S = QKᵀ, softmax, O += PV, one after the other
  kTwoStage,   // QKᵀ of a tile is issued before PV of the one before; softmax runs beside PV
  kThreeStage  // QKᵀ of the next tile and PV of the one before both run beside a tile's softmax
};

enum class FwdSchedule : u8 {
  kOneTile,  // a CTA per tile
  kStatic,   // persistent: CTA i takes tiles i, i + grid, …
  kDynamic   // persistent: a CTA that is free takes the next
};

struct FwdConfig {
  MmaType dtype = MmaType::kBf16;
  MaskKind mask = MaskKind::kFull;
  ScoreKind score = ScoreKind::kPlain;
  int head_dim_qk = 128;  // of the products, multiples of 16; tensors may have up to 15 fewer,
  int head_dim_v = 128;   // which TMA fills with zeros and clips
  int tile_kv = 128;      // keys per tile, a multiple of 16
  int stages = 2;         // of the K ring and of the V ring
  int consumer_wgs = 2;   // each owns 64 rows of Q
  int q_stages = 1;       // Q tiles in shared memory
  FwdStep step = FwdStep::kTwoStage;
  SoftmaxVariant softmax;
  bool ping_pong = true;  // consumers take turns at the tensor cores
  bool p_in_regs = true;  // P as A operand from registers, else through shared memory
  bool o_in_q = false;    // O leaves through the shared memory of Q, else through its own
  bool ragged = false;    // packed or with seqused: lengths are read by the kernel
  FwdSchedule schedule = FwdSchedule::kStatic;
  int cluster = 1;          // CTAs of neighbouring Q tiles that share K and V by multicast
  bool specialised = true;  // producer and scheduler are warps of their own (fwd.cuh)

  constexpr bool operator==(const FwdConfig&) const = default;

  // Q tiles of which a CTA knows at a time. A dynamic schedule asks for the next one late.
  FA3_HD constexpr int work_slots() const { return schedule == FwdSchedule::kDynamic ? 2 : 3; }

  FA3_HD constexpr int tile_q() const { return 64 * consumer_wgs; }
  FA3_HD constexpr int cluster_q() const { return cluster * tile_q(); }
  FA3_HD constexpr int threads() const { return 128 * (consumer_wgs + (specialised ? 1 : 0)); }

  // Does a consumer leave out KV tiles that none of its own rows sees? With 192 rows under a mask
  // that is much; else the code for it costs more than it saves (docs/tuning/fwd_sm90.md).
  FA3_HD constexpr bool skips() const {
    return consumer_wgs == 3 && mask != MaskKind::kFull && step == FwdStep::kTwoStage &&
           specialised;
  }

  // Registers of a thread after setmaxnreg; 64 Ki in all for threads() of them. Without
  // specialisation everyone has what a launch gives.
  FA3_HD constexpr int producer_registers() const {
    return !specialised ? 0 : consumer_wgs == 1 ? 56 : consumer_wgs == 2 ? 40 : 32;
  }
  FA3_HD constexpr int consumer_registers() const {
    if (!specialised) return consumer_wgs == 3 ? 168 : 255;
    return consumer_wgs == 1 ? 256 : consumer_wgs == 2 ? 232 : 160;
  }
  // That accumulators and P take of them.
  FA3_HD constexpr int tile_registers() const {
    const int p = p_in_regs ? tile_kv / 4 : 0;
    const int s = step == FwdStep::kThreeStage ? tile_kv : tile_kv / 2;
    return s + head_dim_v / 2 + p;
  }

  // Rows of shared-memory tiles lie in panels of one swizzle's width: the widest that adds least.
  FA3_HD static constexpr Swizzle swizzle_of(int head_dim) {
    const int bytes = 2 * head_dim;
    if (bytes <= 32) return Swizzle::k32;
    const bool narrow = round_up(bytes, 64) < round_up(bytes, 128);
    return narrow ? Swizzle::k64 : Swizzle::k128;
  }
  FA3_HD constexpr Swizzle swizzle_qk() const { return swizzle_of(head_dim_qk); }
  FA3_HD constexpr Swizzle swizzle_v() const { return swizzle_of(head_dim_v); }
  FA3_HD constexpr Swizzle swizzle_p() const { return swizzle_of(tile_kv); }
  FA3_HD static constexpr int row_bytes(int head_dim) {
    return static_cast<int>(round_up(2 * head_dim, static_cast<int>(swizzle_of(head_dim))));
  }
  FA3_HD constexpr int row_bytes_qk() const { return row_bytes(head_dim_qk); }
  FA3_HD constexpr int row_bytes_v() const { return row_bytes(head_dim_v); }

  // Sizes in shared memory: of one consumer's Q, of one stage of K and of V, of one consumer's P
  // and O (0 where they have no room of their own), and of all.
  FA3_HD constexpr int q_bytes() const { return 64 * row_bytes_qk(); }
  FA3_HD constexpr int k_bytes() const { return tile_kv * row_bytes_qk(); }
  FA3_HD constexpr int v_bytes() const { return tile_kv * row_bytes_v(); }
  FA3_HD constexpr int p_bytes() const { return p_in_regs ? 0 : 64 * row_bytes(tile_kv); }
  FA3_HD constexpr int o_bytes() const { return o_in_q ? 0 : 64 * row_bytes_v(); }
  FA3_HD constexpr int barriers() const {
    return 2 * consumer_wgs * q_stages + 4 * stages + 2 * work_slots();
  }
  FA3_HD constexpr int smem_bytes() const {
    constexpr int kAlign = 1024;  // of every tile: the period of the widest swizzle
    const i64 tiles = round_up(q_stages * consumer_wgs * q_bytes(), kAlign) +
                      round_up(stages * k_bytes(), kAlign) + round_up(stages * v_bytes(), kAlign) +
                      round_up(consumer_wgs * o_bytes(), kAlign) +
                      round_up(consumer_wgs * p_bytes(), kAlign);
    const int padding = o_in_q && !p_in_regs ? kAlign : 0;  // between O's stand-in and P
    return static_cast<int>(round_up(tiles + padding + 96 * work_slots() + 8 * barriers(), kAlign));
  }
};

}  // namespace fa3::sm90
