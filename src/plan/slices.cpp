// SPDX-License-Identifier: BSD-3-Clause
// slices.cpp — where slices lie: a stack in the order of their ranks, shared by those that are not
// used at the same time.
#include "plan/slices.h"

#include <algorithm>

namespace fa3 {
namespace {

int rank_of(const PlacedSlice& s) {
  return s.last == PlacedSlice::kWholePlan ? 0 : s.slice.zeroed ? 1 : 2;
}

bool meet(const PlacedSlice& a, const PlacedSlice& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

size_t lay_out(std::vector<PlacedSlice>& slices) {
  std::vector<PlacedSlice*> order;
  for (PlacedSlice& s : slices)
    if (s.slice.bytes > 0) order.push_back(&s);
  std::stable_sort(order.begin(), order.end(), [](const PlacedSlice* a, const PlacedSlice* b) {
    return rank_of(*a) < rank_of(*b);
  });
  size_t bytes = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    PlacedSlice& s = *order[i];
    s.offset = 0;
    for (size_t j = 0; j < i; ++j)
      if (meet(s, *order[j])) s.offset = std::max(s.offset, order[j]->end());
    s.offset = (s.offset + s.slice.align - 1) / s.slice.align * s.slice.align;
    bytes = std::max(bytes, s.end());
  }
  return bytes;
}

std::vector<ZeroedRange> zeroed_before(int step, const std::vector<PlacedSlice>& slices) {
  std::vector<ZeroedRange> all;
  for (const PlacedSlice& s : slices)
    if (s.slice.zeroed && s.slice.bytes > 0 && s.first == step)
      all.push_back({s.offset, s.slice.bytes});
  std::sort(all.begin(), all.end(),
            [](const ZeroedRange& a, const ZeroedRange& b) { return a.offset < b.offset; });
  std::vector<ZeroedRange> merged;
  for (const ZeroedRange& range : all) {
    if (!merged.empty() && merged.back().offset + merged.back().bytes == range.offset)
      merged.back().bytes += range.bytes;
    else
      merged.push_back(range);
  }
  return merged;
}

}  // namespace fa3
