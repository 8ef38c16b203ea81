// SPDX-License-Identifier: BSD-3-Clause
// cpu_plan.h — tiles, tasks and scratch of the cpu backend, as pure functions of problem,
// instruction set and threads. What decides the bits of a result (tile_kv, splits, tile_q) depends
// on the problem and the instruction set only; threads decide how blocks are grouped into tasks and
// how much scratch there is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/device.h"
#include "core/problem.h"

namespace fa3 {

namespace cpu {
// Rows of a register tile: 6 × 4 vectors use 24 of 32 registers.
inline constexpr int kTileRows = 6;
inline constexpr int kMaxLanes = 16;  // floats per vector on the widest instruction set
}  // namespace cpu

struct CpuPlan {
  Isa isa = Isa::kScalar;
  int tile_q = 0;    // most query rows of a block
  int tile_kv = 0;   // most keys of a block; a multiple of whole vectors
  int width_qk = 0;  // head_dim_qk, and below head_dim_v, rounded up to whole vectors
  int width_v = 0;
  bool alibi = false;         // the scratch of a block of scores also holds slopes
  bool sequence_ids = false;  // it also holds ids
  bool mask = false;          // it also holds rows of attn_mask
  bool mask_grad = false;     // and sums of dattn_mask
  bool pages = false;         // the scratch of a tile holds where its rows begin
  bool codes = false;         // of 8 bits: it holds K and V as FP32
  // Forward: blocks of query rows per KV head, those of all query heads of its group, at most.
  int64_t blocks = 0;
  // Forward: query rows per KV head are so few that K and V are read in place.
  bool few_rows = false;
  int blocks_per_task = 1;  // forward: blocks that share the packing of a tile of K and V
  // Forward: parts of the keys, computed separately and merged (few query rows, many keys).
  int splits = 1;
  int64_t split_len = 0;     // keys per split, a multiple of tile_kv; meaningful when splits > 1
  int64_t chunks = 0;        // backward: tiles of tile_kv keys per KV head, at most
  int64_t tasks = 0;         // of the main phase
  size_t shared_bytes = 0;   // partial results (forward), dQ accumulator and its turns (backward)
  size_t scratch_bytes = 0;  // per thread
};

// lanes: DeviceInfo's.
CpuPlan make_cpu_plan(const Problem& problem, Isa isa, int lanes, int threads);

// How the query rows of one KV head (all heads of its group, one sequence) are cut into blocks.
// Long sequences: blocks of one head each, of equal size. Short ones (decode): blocks run over the
// heads of the group, so that one pass over K and V serves them all. Row r of the group is query r
// % len_q of head r / len_q.
struct RowBlocks {
  int64_t len_q = 0;
  int64_t per_head = 0;  // blocks per head; 0 = blocks span heads
  int64_t count = 0;
  int64_t size = 0;  // rows per block; the last of a head (or of all) may have fewer
  int64_t rows = 0;  // of the whole group

  struct Block {
    int64_t first = 0;  // row of the group
    int rows = 0;
  };
  Block block(int64_t i) const;
};
RowBlocks row_blocks(int64_t len_q, int64_t group_size, int tile_q);
// The most that a KV head can have where the longest sequence has that many queries. It is the
// longest one's, except where blocks of one head become blocks across heads.
int64_t most_blocks(int64_t longest, int64_t group_size, int tile_q);

// Keys per tile for a sequence: tile_kv, or less so that the last tile is not a sliver.
int64_t balanced_tile(int64_t len, int tile, int lanes);

// Hands out aligned pieces of a buffer; with base nullptr it only counts. The same function thus
// sizes scratch and lays it out.
class Arena {
 public:
  static constexpr size_t kAlign = 64;

  explicit Arena(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t count) {
    T* p = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (static_cast<size_t>(count) * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return p;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace fa3
