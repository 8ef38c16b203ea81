// SPDX-License-Identifier: BSD-3-Clause
// append.h — a forward that appends: what is written before attention, and the problem that then
// is left.
#pragma once

#include <cstddef>
#include <vector>

#include "core/problem.h"
#include "plan/part.h"
#include "plan/slices.h"

namespace fa3 {

// The lengths after appending and, with rotary tables, the rotated queries lie in the workspace,
// which they begin.
struct Append {
  Part attention;  // on these, and on all keys
  size_t lengths = 0;
  size_t queries = 0;  // of the layout that attention has for q
  std::vector<PlacedSlice> slices;
  size_t bytes = 0;  // of all of them

  bool rotates() const { return slices.size() > 1; }
};

// Of a problem that appends.
Append make_append(const Problem& problem);

}  // namespace fa3
