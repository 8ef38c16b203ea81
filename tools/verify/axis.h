// SPDX-License-Identifier: BSD-3-Clause
// axis.h — what a Config says about one sequence axis and about one operand; for problem.cpp and
// config.cpp.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "tools/verify/problem.h"

namespace fa3::verify {

inline bool is_varlen_q(const Config& c) { return !c.varlen_q.empty(); }
inline bool is_varlen_kv(const Config& c) { return !c.varlen_kv.empty(); }

inline int64_t batch_of(const Config& c) {
  if (is_varlen_q(c)) return static_cast<int64_t>(c.varlen_q.size());
  if (is_varlen_kv(c)) return static_cast<int64_t>(c.varlen_kv.size());
  return c.batch;
}

inline int64_t sum(const std::vector<int64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

// One sequence axis of a Config.
struct Axis {
  const std::vector<int64_t>& varlen;
  const std::vector<int64_t>& seqused;
  int64_t seqlen;  // dense
  int64_t spare;   // varlen

  bool is_varlen() const { return !varlen.empty(); }
  int64_t rows() const { return is_varlen() ? sum(varlen) + spare : seqlen; }
  // Rows of sequence b that count.
  int64_t length(int64_t b) const {
    const auto at = static_cast<size_t>(b);
    return !seqused.empty() ? seqused[at] : is_varlen() ? varlen[at] : seqlen;
  }
};

inline Axis axis_q(const Config& c) { return {c.varlen_q, c.seqused_q, c.seqlen_q, c.spare_q}; }
inline Axis axis_kv(const Config& c) {
  return {c.varlen_kv, c.seqused_kv, c.seqlen_kv, c.spare_kv};
}

inline Axis axis_of(const Config& c, Operand x) {
  return x == Operand::kQ ? axis_q(c) : axis_kv(c);
}
inline int64_t heads_of(const Config& c, Operand x) {
  return x == Operand::kQ ? c.heads_q : c.heads_kv;
}
inline int64_t columns_of(const Config& c, Operand x) {
  return x == Operand::kV ? c.head_dim_v : c.head_dim_qk;
}
inline int32_t dtype_of(const Config& c, Operand x) {
  return x == Operand::kV ? dtype_of_v(c) : x == Operand::kK ? dtype_of_k(c) : c.dtype;
}

}  // namespace fa3::verify
