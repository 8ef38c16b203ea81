// SPDX-License-Identifier: BSD-3-Clause
// check_apart.cpp — rows of K and V by their addresses.
#include "core/check_apart.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "core/dtype.h"
#include "core/overlap.h"

namespace fa3 {
namespace {

// Rows begin … end − 1 of an entry of k and v, of sequence b.
struct Rows {
  int64_t entry = 0, begin = 0, end = 0, b = 0;
  bool written = false;
};

View view_of(const Problem& p, const Buffers& x, TensorId id, const Rows& rows) {
  const Layout& at = p.layout[id];
  const int64_t size = dtype_bytes(at.dtype);
  View view;
  view.base = reinterpret_cast<uintptr_t>(x.data[id]) +
              static_cast<uintptr_t>(size * (rows.entry * at.batch + rows.begin * at.row));
  view.element = size;
  view.rank = 3;
  const int64_t extent[] = {rows.end - rows.begin, p.heads_kv, p.columns_of(id)};
  const int64_t stride[] = {at.row * size, at.head * size, size};
  std::ranges::copy(extent, view.extent);
  std::ranges::copy(stride, view.stride);
  return view;
}

// What the call names, cut where pages end and where the new keys begin.
std::vector<Rows> named_rows(const Problem& p, const Buffers& x) {
  std::vector<Rows> all;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence before = kv_sequence(p, x, b), after = kv_sequence_after(p, x, b);
    const int64_t fresh = before.begin + before.len, end = after.begin + after.len;
    for (int64_t row = before.begin; row < end;) {
      const KeyPlace at = key_place(p, x, b, row);
      const int64_t next =
          std::min(row - at.row + p.cache.page_size, row < fresh ? std::min(fresh, end) : end);
      all.push_back({at.entry, at.row, at.row + next - row, b, row >= fresh});
      row = next;
    }
  }
  return all;
}

struct Placed {
  View view;
  Rows rows;
};

std::vector<Placed> by_address(const Problem& p, const Buffers& x, TensorId id,
                               const std::vector<Rows>& all) {
  std::vector<Placed> placed;
  placed.reserve(all.size());
  for (const Rows& rows : all) placed.push_back({view_of(p, x, id, rows), rows});
  std::ranges::sort(placed, {}, [](const Placed& at) { return at.view.base; });
  return placed;
}

// No row that is written to `id` is one of `other`.
Status check_written(const Problem& p, const Buffers& x, TensorId id, TensorId other,
                     const std::vector<Rows>& all) {
  const std::vector<Placed> others = by_address(p, x, other, all);
  int64_t longest = 0;
  for (const Placed& at : others) longest = std::max(longest, at.view.span_bytes());
  for (const Rows& rows : all) {
    if (!rows.written) continue;
    const View view = view_of(p, x, id, rows);
    const uintptr_t end = view.base + static_cast<uintptr_t>(view.span_bytes());
    const uintptr_t first = view.base - std::min(view.base, static_cast<uintptr_t>(longest));
    const auto base = [](const Placed& at) { return at.view.base; };
    for (auto at = std::ranges::lower_bound(others, first, {}, base);
         at != others.end() && at->view.base < end; ++at) {
      if (overlap(view, at->view) == Overlap::kDisjoint) continue;
      return invalid(
          "forward: rows {}…{} of page {} of {}, which sequence {} appends to, are in memory rows "
          "of page {} of {}, which sequence {} reads; need pages of {} that are none of {}",
          rows.begin, rows.end - 1, rows.entry, tensor_name(id), rows.b, at->rows.entry,
          tensor_name(other), at->rows.b, tensor_name(id), tensor_name(other));
    }
  }
  return {};
}

}  // namespace

Status check_apart(const Problem& problem, const Buffers& buffers) {
  const auto pages = [&](TensorId id) {
    View all = view_of(problem, buffers, id, {0, 0, problem.cache.page_size});
    all.extent[3] = problem.cache.entries;
    all.stride[3] = problem.layout[id].batch * all.element;
    all.rank = 4;
    return all;
  };
  if (overlap(pages(kK), pages(kV)) == Overlap::kDisjoint) return {};
  const std::vector<Rows> all = named_rows(problem, buffers);
  FA3_RETURN_IF_ERROR(check_written(problem, buffers, kK, kV, all));
  return check_written(problem, buffers, kV, kK, all);
}

}  // namespace fa3
