// SPDX-License-Identifier: BSD-3-Clause
// ids.h — what sequence ids leave visible of a block: where an id is among those of a tile, and the
// stretches of columns that a row with gaps, which a mask may make too, sees.
//
// Ids may come in any order, and are sorted in practice (documents one after another). Then an id
// is one stretch of a tile, the spans of the masks are enough, and nothing else is computed.
// Only where other ids lie between does a row have gaps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/mask_rows.h"
#include "device/types.h"
#include "plan/cpu/scratch.h"

namespace fa3::cpu {

inline IdRange range_of(const int32_t* ids, IndexRange rows) {
  IdRange range;
  for (int64_t i = rows.lo; i < rows.hi; ++i)
    range = {std::min(range.lo, ids[i]), std::max(range.hi, ids[i])};
  return range;
}

// From the first to the last of some ids that is equal to one.
struct IdSpan {
  Span span;
  bool gaps = false;  // others lie between
};

// Looks ids up among those of a tile. Consecutive rows mostly have the same id.
class IdFinder {
 public:
  IdFinder(const int32_t* ids, int64_t count) : ids_(ids), count_(static_cast<int>(count)) {}

  const IdSpan& find(int32_t id) {
    if (!known_ || id != id_) found_ = search(id);
    id_ = id;
    known_ = true;
    return found_;
  }

 private:
  IdSpan search(int32_t id) const {
    const int lo = static_cast<int>(std::find(ids_, ids_ + count_, id) - ids_);
    if (lo == count_) return {};
    int hi = count_;
    while (ids_[hi - 1] != id) --hi;
    int equal = 0;
    for (int i = lo; i < hi; ++i) equal += ids_[i] == id ? 1 : 0;
    return {{lo, hi}, equal != hi - lo};
  }

  const int32_t* ids_;
  int count_;
  bool known_ = false;
  int32_t id_ = 0;
  IdSpan found_;
};

inline Span overlap(Span a, Span b) {
  const Span both = intersect(a, b);
  return both.empty() ? Span{} : both;
}

// Calls f(span) for each stretch of columns within a span that a row sees.
template <class Sees, class F>
void for_each_stretch_of(Sees&& sees, Span within, F&& f) {
  for (int i = within.lo; i < within.hi;) {
    if (!sees(i)) {
      ++i;
      continue;
    }
    Span stretch{i, i};
    while (stretch.hi < within.hi && sees(stretch.hi)) ++stretch.hi;
    f(stretch);
    i = stretch.hi;
  }
}

// The rows of a block and their columns, as in ScoreTerms. Without ids, or without a mask, these
// pointers are nullptr.
struct SeenColumns {
  int rows = 0;
  const Span* visible = nullptr;
  const uint8_t* gaps = nullptr;
  const int32_t* row_id = nullptr;
  const int32_t* column_id = nullptr;
  const std::byte* const* mask_at = nullptr;
  int64_t mask_step = 0;
  fa3_dtype mask_dtype = FA3_F32;

  bool sees(int row, int column) const {
    if (column_id != nullptr && column_id[column] != row_id[row]) return false;
    return mask_at == nullptr || !MaskRow{mask_at[row], mask_step, mask_dtype}.hides(column);
  }

  // Calls f(row, span, first) for all stretches of columns that each row sees, first or not of its
  // row; once with an empty span for a row that sees none.
  template <class F>
  void for_each(F&& f) const {
    for (int r = 0; r < rows; ++r) {
      bool first = true;
      const auto add = [&](Span span) {
        f(r, span, first);
        first = false;
      };
      if (gaps[r]) {
        for_each_stretch_of([&](int column) { return sees(r, column); }, visible[r], add);
        if (first) add({});
      } else {
        add(visible[r]);
      }
    }
  }
};

}  // namespace fa3::cpu
