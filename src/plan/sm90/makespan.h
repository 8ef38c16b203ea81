// SPDX-License-Identifier: BSD-3-Clause
// makespan.h — when the last unit of work ends if each worker takes the next as it becomes free.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace fa3::sm90 {

// cost(i) of units 0 … count, in the order in which they are taken.
template <class Cost>
double makespan(int64_t workers, int64_t count, const Cost& cost) {
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int64_t i = 0; i < workers; ++i) free_at.push(0);
  double last = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double end = free_at.top() + cost(i);
    free_at.pop();
    free_at.push(end);
    last = std::max(last, end);
  }
  return last;
}

}  // namespace fa3::sm90
