// SPDX-License-Identifier: BSD-3-Clause
// bf16-inl.h — operands of BF16 pairs, for processors with a BF16 dot product (x86 AVX512-BF16).
// Packing as in pack-inl.h with 32-bit units of two elements along the contraction. Include inside
// HWY_NAMESPACE of HWY_AVX3, once.
//
// dpbf16 takes subnormal inputs as 0 and flushes results: not bit-equal to widening, by design of
// the instruction.

// One row of cols BF16 → 2·width ≥ cols elements at dst, zero-filled; times ±1.
HWY_ATTR HWY_INLINE void copy_bf16_row(const Bf16* src, int cols, uint16_t flip, float* dst,
                                       int64_t width, uint32_t& exponents_full) {
  auto* to = reinterpret_cast<uint16_t*>(dst);
  for (int c = 0; c < cols; ++c) {
    to[c] = static_cast<uint16_t>(src[c].bits ^ flip);
    exponents_full |= (src[c].bits & 0x7F80) == 0x7F80;  // NaN or Inf
  }
  for (int64_t c = cols; c < 2 * width; ++c) to[c] = 0;
}

HWY_ATTR bool copy_rows_bf16(const Rows& src, float factor, float* a, int64_t ld) {
  uint32_t nonfinite = 0;
  const auto* data = static_cast<const Bf16*>(src.data);
  for (int r = 0; r < src.rows; ++r)
    copy_bf16_row(data + r * src.stride, src.cols, factor < 0 ? 0x8000 : 0, a + r * ld, ld,
                  nonfinite);
  return nonfinite == 0;
}

HWY_ATTR void pack_transposed_bf16(const Rows& src, float* b) {
  uint32_t unused = 0;
  const auto* data = static_cast<const Bf16*>(src.data);
  const int units = (src.cols + 1) / 2;
  HWY_ALIGN float buffer[kLanes * kMaxHeadDim / 2];
  for (int r = 0; r < src.rows; r += kLanes) {
    const float* rows[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      float* row = buffer + i * (kMaxHeadDim / 2);
      rows[i] = row;
      const int cols = r + i < src.rows ? src.cols : 0;
      const Bf16* from = cols > 0 ? data + src.at(r + i) : data;
      copy_bf16_row(from, cols, 0, row, (units + 3) / 4 * 4, unused);
    }
    transpose_to_panel(rows, units, r, src.rows, b);
  }
}

// Rows 2i and 2i + 1 interleaved: unit (i, c) = (src(2i, c), src(2i + 1, c)).
HWY_ATTR bool pack_rows_bf16(const Rows& src, float* b) {
  uint32_t nonfinite = 0;
  const auto* data = static_cast<const Bf16*>(src.data);
  const int units = (src.rows + 1) / 2;
  for (int p = 0; p < src.cols; p += kPanel) {
    const int cols = HWY_MIN(kPanel, src.cols - p);
    const int width = HWY_MIN(kPanel, (cols + kLanes - 1) / kLanes * kLanes);
    auto* panel = reinterpret_cast<uint32_t*>(b + static_cast<int64_t>(p) * units);
    for (int i = 0; i < units; ++i) {
      const Bf16* even = data + src.at(2 * i) + p;
      const Bf16* odd = 2 * i + 1 < src.rows ? data + src.at(2 * i + 1) + p : nullptr;
      uint32_t* row = panel + static_cast<int64_t>(i) * width;
      for (int c = 0; c < cols; ++c) {
        const uint32_t lo = even[c].bits;
        const uint32_t hi = odd ? odd[c].bits : 0;
        nonfinite |= (lo & 0x7F80) == 0x7F80;
        nonfinite |= (hi & 0x7F80) == 0x7F80;
        row[c] = lo | hi << 16;
      }
      for (int c = cols; c < width; ++c) row[c] = 0;
    }
  }
  return nonfinite == 0;
}

HWY_ATTR void pair_rows_bf16(int rows, int cols, const float* ds, int64_t ld, float* a,
                             int64_t lda) {
  for (int r = 0; r < rows; r += 2) {
    const auto* even = reinterpret_cast<const uint16_t*>(ds + r * ld);
    const auto* odd = r + 1 < rows ? reinterpret_cast<const uint16_t*>(ds + (r + 1) * ld) : nullptr;
    auto* out = reinterpret_cast<uint32_t*>(a + r / 2 * lda);
    for (int c = 0; c < cols; ++c) out[c] = even[c] | static_cast<uint32_t>(odd ? odd[c] : 0) << 16;
  }
}

inline HWY_ATTR float bf16_of(const float* units, int64_t i) {
  return to_float(Bf16{reinterpret_cast<const uint16_t*>(units)[i]});
}

// The exact form of gemm_depth where an element of a pair must not be touched: scalar, for blocks
// with NaN or Inf only.
template <bool kColumnA>
HWY_ATTR void gemm_depth_rows_bf16(int rows, int k, const float* a, int64_t lda, const float* b,
                                   int n, float* c, int64_t ldc, const Span* depth, bool first) {
  for (int r = 0; r < rows; ++r) {
    for (int col = 0; col < n; ++col) {
      const int p = col / kPanel * kPanel;
      const int width = HWY_MIN(kPanel, (n - p + kLanes - 1) / kLanes * kLanes);
      const float* panel = b + static_cast<int64_t>(p) * k;
      float sum = first ? 0.0f : c[r * ldc + col];
      for (int i = depth[r].lo; i < depth[r].hi; ++i) {
        const float x = kColumnA ? bf16_of(a + i / 2 * lda + r, i % 2) : bf16_of(a + r * lda, i);
        sum += x * bf16_of(panel + static_cast<int64_t>(i / 2) * width + (col - p), i % 2);
      }
      c[r * ldc + col] = sum;
    }
  }
}
