// SPDX-License-Identifier: BSD-3-Clause
// max_logit.h — the greatest score of a query head, which all its rows raise.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "core/problem.h"

namespace fa3 {

inline float& max_logit_of(const Problem& p, const Buffers& x, int64_t head) {
  return x.out<float>(kMaxLogit)[head * p.layout[kMaxLogit].head];
}

// Before a run: no score yet.
inline void reset_max_logit(const Problem& p, const Buffers& x) {
  if (!p.has_max_logit()) return;
  for (int64_t h = 0; h < p.heads_q; ++h)
    max_logit_of(p, x, h) = -std::numeric_limits<float>::infinity();
}

// By the greatest score of some rows; tasks may do so at the same time.
inline void raise_max_logit(const Problem& p, const Buffers& x, int64_t head, double score) {
  if (!p.has_max_logit()) return;
  const std::atomic_ref<float> most(max_logit_of(p, x, head));
  const auto value = static_cast<float>(score);
  float before = most.load(std::memory_order_relaxed);
  while (value > before && !most.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

}  // namespace fa3
