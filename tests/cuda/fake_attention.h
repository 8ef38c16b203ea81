// SPDX-License-Identifier: BSD-3-Clause
// fake_attention.h — what the forward kernel computes, of dense BF16 tensors and by simple loops,
// for programs that look at results on the fake driver.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "device/sm90/fwd/args.h"

// A tensor map as the fake's cuTensorMapEncodeTiled writes it.
class FakeMap {
 public:
  explicit FakeMap(const fa3::TensorMap& map)
      : word_(reinterpret_cast<const uint64_t*>(map.opaque)) {}

  uint64_t base() const { return word_[1]; }
  int rank() const { return static_cast<int>(word_[0] >> 8 & 0xff); }
  int64_t extent(int dim) const { return static_cast<int64_t>(word_[2 + dim]); }
  uint64_t stride_bytes(int dim) const { return word_[2 + rank() + dim - 1]; }  // dim ≥ 1
  uint16_t* row(int64_t row, int64_t head, int64_t sequence) const {
    const uint64_t index[] = {uint64_t(row), uint64_t(head), uint64_t(sequence)};
    uint64_t at = base();
    for (int dim = 1; dim <= 3; ++dim) at += index[dim - 1] * stride_bytes(dim);
    return reinterpret_cast<uint16_t*>(at);
  }

 private:
  const uint64_t* word_;
};

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t bf16_of(double value) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline void fake_attention(const fa3::sm90::FwdArgs& args) {
  const FakeMap q(args.q), k(args.k), v(args.v), o(args.o);
  const int64_t columns = q.extent(0), columns_v = v.extent(0);
  std::vector<double> sums(static_cast<size_t>(columns_v));
  const auto attend = [&](int64_t row, int64_t head, int64_t b) {
    const fa3::Range<int> keys =
        fa3::keys_of_row(args.band<fa3::MaskKind::kWindow>(), static_cast<int>(q.extent(1)),
                         static_cast<int>(k.extent(1)), int(row));
    double weights = 0;
    sums.assign(sums.size(), 0);
    for (int64_t j = keys.lo; j < keys.hi; ++j) {
      const uint16_t *x = q.row(row, head, b), *y = k.row(j, head / args.group_size, b);
      double score = 0;
      for (int64_t c = 0; c < columns; ++c) score += bf16_to_float(x[c]) * bf16_to_float(y[c]);
      const double weight = std::exp2(score * args.scale_log2);  // small scores: no maximum
      weights += weight;
      const uint16_t* z = v.row(j, head / args.group_size, b);
      for (size_t c = 0; c < sums.size(); ++c) sums[c] += weight * bf16_to_float(z[c]);
    }
    for (size_t c = 0; c < sums.size(); ++c)
      o.row(row, head, b)[c] = bf16_of(weights > 0 ? sums[c] / weights : 0);
  };
  for (int64_t b = 0; b < args.batch; ++b) {
    for (int64_t head = 0; head < args.heads_q; ++head) {
      for (int64_t row = 0; row < q.extent(1); ++row) attend(row, head, b);
    }
  }
}
