// SPDX-License-Identifier: BSD-3-Clause
// warp.cuh — conformance of the warp's collective instructions: shuffles, votes, redux, elect.
#pragma once

#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/warp.h"

namespace fa3::selftest {

enum class ShuffleKind : u8 { kIndex, kXor, kUp, kDown };
inline constexpr u32 kShuffleWidths = 6;     // 1, 2, 4 … 32
inline constexpr u32 kShuffleOperands = 32;  // 0 … 31

struct ShuffleArgs {
  const u32* in;  // [32]
  u32* out;       // [width][operand][lane]
};

template <ShuffleKind kKind>
FA3_KERNEL(32)
void shuffle(FA3_GRID_CONSTANT const ShuffleArgs args) {
  const u32 lane = ptx::lane_index();
  const u32 value = ptx::ld_global(args.in + lane);
  for (u32 w = 0; w < kShuffleWidths; ++w) {
    for (u32 operand = 0; operand < kShuffleOperands; ++operand) {
      u32 got = 0;
      if constexpr (kKind == ShuffleKind::kIndex) got = ptx::shfl_idx(value, operand, 1u << w);
      if constexpr (kKind == ShuffleKind::kXor) got = ptx::shfl_xor(value, operand, 1u << w);
      if constexpr (kKind == ShuffleKind::kUp) got = ptx::shfl_up(value, operand, 1u << w);
      if constexpr (kKind == ShuffleKind::kDown) got = ptx::shfl_down(value, operand, 1u << w);
      ptx::st_global(args.out + (w * kShuffleOperands + operand) * 32 + lane, got);
    }
  }
}

// In each CTA, each lane of the mask writes one word of each of these.
enum class VoteWord : u32 {
  kBallot,
  kAny,
  kAll,
  kAdd,
  kMinU32,
  kMaxU32,
  kMinI32,
  kMaxI32,
  kAnd,
  kOr,
  kElected,       // how many lanes elect_one chose
  kElectedAgain,  // 1 when a second election chose the same lane
  kCount,
};

struct VoteArgs {
  const u32* mask;   // [CTA]: lanes that take part
  const u32* value;  // [CTA][32]; its lowest bit is what is voted on
  u32* out;          // [CTA][VoteWord][32]; lanes outside the mask write nothing
};

FA3_KERNEL(32)
void vote(FA3_GRID_CONSTANT const VoteArgs args) {
  const u32 lane = ptx::lane_index();
  const u32 cta = ptx::block_index_x();
  const u32 mask = ptx::ld_global(args.mask + cta);
  if ((mask >> lane & 1) == 0) return;
  const u32 value = ptx::ld_global(args.value + 32 * cta + lane);
  const i32 value_i32 = static_cast<i32>(value);
  const bool predicate = (value & 1) != 0;
  const u32 elected = ptx::ballot(ptx::elect_one(mask), mask);
  const u32 again = ptx::ballot(ptx::elect_one(mask), mask);
  u32* out = args.out + cta * static_cast<u32>(VoteWord::kCount) * 32 + lane;
  const auto write = [&](VoteWord word, u32 bits) {
    ptx::st_global(out + 32 * static_cast<u32>(word), bits);
  };
  write(VoteWord::kBallot, ptx::ballot(predicate, mask));
  write(VoteWord::kAny, ptx::any(predicate, mask) ? 1 : 0);
  write(VoteWord::kAll, ptx::all(predicate, mask) ? 1 : 0);
  write(VoteWord::kAdd, ptx::redux_add(value, mask));
  write(VoteWord::kMinU32, ptx::redux_min_u32(value, mask));
  write(VoteWord::kMaxU32, ptx::redux_max_u32(value, mask));
  write(VoteWord::kMinI32, static_cast<u32>(ptx::redux_min_i32(value_i32, mask)));
  write(VoteWord::kMaxI32, static_cast<u32>(ptx::redux_max_i32(value_i32, mask)));
  write(VoteWord::kAnd, ptx::redux_and(value, mask));
  write(VoteWord::kOr, ptx::redux_or(value, mask));
  u32 count = 0;
  for (u32 i = 0; i < 32; ++i) count += elected >> i & 1;
  write(VoteWord::kElected, count);
  write(VoteWord::kElectedAgain, elected == again ? 1 : 0);
}

}  // namespace fa3::selftest
