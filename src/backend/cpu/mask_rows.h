// SPDX-License-Identifier: BSD-3-Clause
// mask_rows.h — attn_mask in a block: where its elements lie, which of them hide, and what a row
// leaves visible of a span. An element hides when its bits are those of 0 (BOOL) or −inf.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/block.h"

namespace fa3::cpu {

// The elements of type U in [lo, hi) from the first to the last that is not `hidden`; empty when
// there is none.
template <class U>
Span first_to_last(const U* row, Span within, U hidden) {
  constexpr int kRun = 64;  // elements that are looked at without a branch
  int lo = within.lo, hi = within.hi;
  const auto all_hidden = [&](int from) {
    U differs = 0;
    for (int i = from; i < from + kRun; ++i) differs |= static_cast<U>(row[i] ^ hidden);
    return differs == 0;
  };
  if (lo < hi && row[lo] == hidden)
    while (lo + kRun <= hi && all_hidden(lo)) lo += kRun;
  while (lo < hi && row[lo] == hidden) ++lo;
  if (lo == hi) return {};
  if (row[hi - 1] == hidden)
    while (hi - kRun >= lo && all_hidden(hi - kRun)) hi -= kRun;
  while (row[hi - 1] == hidden) --hi;
  return {lo, hi};
}

// Calls f with a value of the type of an element's bits, which are those of one that hides.
template <class F>
auto with_hidden(fa3_dtype dtype, F&& f) {
  switch (dtype) {
    case FA3_BOOL:
      return f(uint8_t{0});
    case FA3_F16:
      return f(uint16_t{0xfc00});
    case FA3_BF16:
      return f(uint16_t{0xff80});
    default:
      return f(uint32_t{0xff800000});
  }
}

// Element 0 of a row of a mask.
struct MaskRow {
  const std::byte* at = nullptr;
  int64_t step = 0;  // bytes from one column to the next
  fa3_dtype dtype = FA3_F32;

  bool hides(int64_t column) const {
    return with_hidden(dtype, [&](auto hidden) {
      return *reinterpret_cast<const decltype(hidden)*>(at + column * step) == hidden;
    });
  }
  // Columns of a span from the first to the last that it does not hide.
  Span visible(Span within) const {
    if (within.empty()) return {};
    if (step == 0) return hides(0) ? Span{} : within;
    return with_hidden(dtype, [&](auto hidden) {
      return first_to_last(reinterpret_cast<const decltype(hidden)*>(at), within, hidden);
    });
  }
  bool hides_any(Span within) const {
    if (within.empty()) return false;
    if (step == 0) return hides(0);
    return with_hidden(dtype, [&](auto hidden) {
      const auto* const row = reinterpret_cast<const decltype(hidden)*>(at);
      bool any = false;
      for (int i = within.lo; i < within.hi; ++i) any |= row[i] == hidden;
      return any;
    });
  }
};

// The mask of one query head of a batch entry, none without data.
struct HeadMask {
  const std::byte* data = nullptr;
  int64_t row = 0, column = 0;  // bytes
  fa3_dtype dtype = FA3_F32;
  int64_t origin = 0;  // the key of column 0; those before are seen as it is

  HeadMask() = default;
  HeadMask(const Problem& p, const Buffers& x, int64_t b, int64_t h) {
    if (!p.has_mask()) return;
    const Layout& layout = p.layout[kAttnMask];
    dtype = layout.dtype;
    data = element<const std::byte>(layout, x.data[kAttnMask], b, 0, 0, h);
    row = layout.row * dtype_bytes(dtype);
    column = layout.column * dtype_bytes(dtype);
  }
  // From key `first` of a query on.
  MaskRow keys_of(int64_t query, int64_t first) const {
    return {data + query * row + std::max<int64_t>(first - origin, 0) * column, column, dtype};
  }
};

}  // namespace fa3::cpu
