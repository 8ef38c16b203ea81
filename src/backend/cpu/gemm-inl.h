// SPDX-License-Identifier: BSD-3-Clause
// gemm-inl.h — the one microkernel of every GEMM, for one instruction set and one operand type.
// Included once per operand type inside HWY_NAMESPACE, so no include guard. The includer defines
//   FA3_OP       namespace of this instance (op_f32, op_bf16)
//   FA3_OP_ATTR  function attribute that adds what the multiply needs to the instruction set (""
//     for FP32)
//   FA3_OP_UNIT  elements per 32-bit unit: 1 or 2
//   FA3_OP_DOT(a, b, c)  c + a·b on vectors of 32-bit units
//
// Tile MR×NV: MR·NV accumulators, NV vectors of B, one broadcast of A. 6×4 fills 24 of 32 AVX-512
// registers and needs 10 loads per 24 multiplies; 6×2 fills
// the same share of 16 registers.

namespace FA3_OP {

// A long sum is thus a sum of short ones, k terms each: its rounding error grows with the number of
// blocks, not of terms. Loops have a constant trip count: they unroll at -O3, which this
// file's build sets.
template <int MR, int NV, bool kColumnA>
FA3_OP_ATTR HWY_INLINE void tile(int64_t k, const float* HWY_RESTRICT a, int64_t lda,
                                 const float* HWY_RESTRICT b, int64_t ldb, float* HWY_RESTRICT c,
                                 int64_t ldc, bool accumulate) {
  const DF d;
  VF acc[MR][NV];
  for (int m = 0; m < MR; ++m)
    for (int n = 0; n < NV; ++n) acc[m][n] = hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) {
    VF row[NV];
    for (int n = 0; n < NV; ++n) row[n] = hn::LoadU(d, b + i * ldb + n * kLanes);
    for (int m = 0; m < MR; ++m) {
      const VF x = hn::Set(d, kColumnA ? a[i * lda + m] : a[m * lda + i]);
      for (int n = 0; n < NV; ++n) acc[m][n] = FA3_OP_DOT(x, row[n], acc[m][n]);
    }
  }
  for (int m = 0; m < MR; ++m) {
    for (int n = 0; n < NV; ++n) {
      float* at = c + m * ldc + n * kLanes;
      hn::StoreU(accumulate ? hn::Add(acc[m][n], hn::LoadU(d, at)) : acc[m][n], d, at);
    }
  }
}

// tile() with a run-time number of vectors, 1…kVectors.
template <int MR, bool kColumnA>
FA3_OP_ATTR HWY_INLINE void tile_of(int vectors, int64_t k, const float* a, int64_t lda,
                                    const float* b, int64_t ldb, float* c, int64_t ldc,
                                    bool accumulate) {
  if constexpr (kVectors == 4) {
    if (vectors == 4) return tile<MR, 4, kColumnA>(k, a, lda, b, ldb, c, ldc, accumulate);
    if (vectors == 3) return tile<MR, 3, kColumnA>(k, a, lda, b, ldb, c, ldc, accumulate);
  }
  if (vectors == 2) return tile<MR, 2, kColumnA>(k, a, lda, b, ldb, c, ldc, accumulate);
  tile<MR, 1, kColumnA>(k, a, lda, b, ldb, c, ldc, accumulate);
}

FA3_OP_ATTR void gemm_columns(int tiles, int k, const float* a, int64_t lda, const float* b, int n,
                              float* c, int64_t ldc, const Span* columns) {
  for (int p = 0; p < n; p += kPanel) {  // a panel of k·panel floats stays in L1 for all tiles
    const int width = HWY_MIN(kPanel, (n - p + kLanes - 1) / kLanes * kLanes);
    const float* panel = b + static_cast<int64_t>(p) * k;
    for (int t = 0; t < tiles; ++t) {
      const int lo = HWY_MAX(columns[t].lo - p, 0) / kLanes;
      const int hi = (HWY_MIN(columns[t].hi - p, width) + kLanes - 1) / kLanes;
      if (columns[t].hi <= p || lo >= hi) continue;
      tile_of<kTileRows, false>(hi - lo, k, a + t * kTileRows * lda, lda, panel + lo * kLanes,
                                width, c + t * kTileRows * ldc + p + lo * kLanes, ldc, false);
    }
  }
}

// MR = 6: one span per tile; MR = 1: one span per row. Spans count elements, FA3_OP_UNIT to a unit
// of depth.
template <int MR, bool kColumnA>
FA3_OP_ATTR void gemm_depth(int tiles, int k, const float* a, int64_t lda, const float* b, int n,
                            float* c, int64_t ldc, const Span* depth, bool first) {
  for (int p = 0; p < n; p += kPanel) {
    const int width = HWY_MIN(kPanel, (n - p + kLanes - 1) / kLanes * kLanes);
    const float* panel = b + static_cast<int64_t>(p) * k;
    for (int t = 0; t < tiles; ++t) {
      const Span span{depth[t].lo / FA3_OP_UNIT, depth[t].hi / FA3_OP_UNIT};
      if (span.empty() && !first) continue;
      const int64_t row = static_cast<int64_t>(t) * MR;
      const float* from = kColumnA ? a + span.lo * lda + row : a + row * lda + span.lo;
      tile_of<MR, kColumnA>(width / kLanes, HWY_MAX(span.hi - span.lo, 0), from, lda,
                            panel + static_cast<int64_t>(span.lo) * width, width, c + row * ldc + p,
                            ldc, !first);
    }
  }
}

}  // namespace FA3_OP
