// SPDX-License-Identifier: BSD-3-Clause
// sink.h — what an attention sink does to a row of the backends cpu and reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backend/cpu/reference_rows.h"
#include "core/problem.h"

namespace fa3 {

// The sink of a head; −∞ where there is none.
inline double sink_of(const Problem& p, const Buffers& x, int64_t head) {
  if (!p.has_sinks()) return -std::numeric_limits<double>::infinity();
  return reference::element(p, x, kSinks, head * p.layout[kSinks].head);
}

// A row with its sink: LSE, and the part of the sum that is of keys.
struct SinkRow {
  double lse;
  double keys;
};

// lse: of the keys, −∞ where there are none. A sink of +∞ makes the row NaN, as a score of +∞ does.
inline SinkRow with_sink(double lse, double sink) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (sink == -kInf) return {lse, 1};
  if (sink == kInf) sink = std::numeric_limits<double>::quiet_NaN();
  const double apart = sink - lse, less = std::exp(-std::abs(apart));  // NaN stays one
  return {std::max(lse, sink) + std::log1p(less), (apart > 0 ? less : 1) / (1 + less)};
}

// Writes a head's element of dsinks.
inline void store_sink_gradient(const Problem& p, const Buffers& x, int64_t head, double value) {
  reference::store(p, x, kDsinks, head * p.layout[kDsinks].head, 1, &value);
}

// What a row adds to dsinks; delta: Σ O·dO − dLSE. A row whose LSE is −∞ has no weights.
inline double sink_gradient(double lse, double sink, double delta) {
  return lse == -std::numeric_limits<double>::infinity() ? 0 : -std::exp(sink - lse) * delta;
}

}  // namespace fa3
