// SPDX-License-Identifier: BSD-3-Clause
// sink.h — what an attention sink does to a row of the backends cpu and reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype.h"
#include "core/problem.h"

namespace fa3 {

// The sink of a head; −∞ where there is none.
inline double sink_of(const Problem& p, const Buffers& x, int64_t head) {
  if (!p.has_sinks()) return -std::numeric_limits<double>::infinity();
  const int64_t at = head * p.layout[kSinks].head;
  switch (p.layout[kSinks].dtype) {
    case FA3_F64:
      return x.in<double>(kSinks)[at];
    case FA3_F16:
      return to_float(x.in<F16>(kSinks)[at]);
    case FA3_BF16:
      return to_float(x.in<Bf16>(kSinks)[at]);
    default:
      return x.in<float>(kSinks)[at];
  }
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
  const int64_t at = head * p.layout[kDsinks].head;
  switch (p.layout[kDsinks].dtype) {
    case FA3_F64:
      x.out<double>(kDsinks)[at] = value;
      break;
    case FA3_F16:
      x.out<F16>(kDsinks)[at] = from_double<F16>(value);
      break;
    case FA3_BF16:
      x.out<Bf16>(kDsinks)[at] = from_double<Bf16>(value);
      break;
    default:
      x.out<float>(kDsinks)[at] = static_cast<float>(value);
  }
}

// What a row adds to dsinks; delta: Σ O·dO − dLSE. A row whose LSE is −∞ has no weights.
inline double sink_gradient(double lse, double sink, double delta) {
  return lse == -std::numeric_limits<double>::infinity() ? 0 : -std::exp(sink - lse) * delta;
}

}  // namespace fa3
