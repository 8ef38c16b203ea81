// SPDX-License-Identifier: BSD-3-Clause
// tree_rows.h — tree_mask as rows of a boolean mask: of all keys only those that a tile with new
// ones may have are in memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/mask_rows.h"
#include "core/executor.h"
#include "core/problem.h"
#include "plan/cpu/scratch.h"

namespace fa3::cpu {

struct TreeRows : TreeCells {
  using TreeCells::TreeCells;

  void write(const Problem& p, const Buffers& x, const Executor& executor) const {
    if (!p.has_tree()) return;
    executor.run(p.batch, [&](const TaskContext& task) {
      const Sequence queries = q_sequence(p, x, task.index);
      for (int64_t row = queries.begin; row < queries.begin + queries.len; ++row) {
        const uint64_t bits = tree_bits(p, x, task.index, row);
        std::byte* const to = row_of(p, task.index, row);
        for (int64_t j = 0; j < row_bytes; ++j) to[j] = std::byte{tree_shows(bits, before, j)};
      }
    });
  }
  // Of any head of a sequence whose new keys begin at key `first`. A tile that begins further
  // before them ends before them.
  HeadMask mask(const Problem& p, int64_t b, const Sequence& queries, int64_t first) const {
    HeadMask mask;
    mask.data = row_of(p, b, queries.begin);
    mask.row = row_bytes, mask.column = 1;
    mask.dtype = FA3_BOOL;
    mask.origin = first - before;
    return mask;
  }

 private:
  // row: as a Sequence counts.
  std::byte* row_of(const Problem& p, int64_t b, int64_t row) const {
    return rows + (row + (p.q.varlen ? 0 : b * p.q.rows)) * row_bytes;
  }
};

// Does a query with these bits see one of the sequence's keys, of which the new ones begin at
// `first`?
inline bool sees_some(uint64_t bits, int64_t first, int64_t keys) {
  bool some = first > 0 && keys > 0;
  for (int64_t j = std::max<int64_t>(first, 0); j < keys; ++j) some |= tree_shows(bits, first, j);
  return some;
}

}  // namespace fa3::cpu
