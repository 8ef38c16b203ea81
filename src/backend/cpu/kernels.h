// SPDX-License-Identifier: BSD-3-Clause
// kernels.h — the SIMD layer of the cpu backend: coarse operations on one block, one table per
// instruction set.
//
// All GEMMs have one shape: C[m × n] (+)= A[m × k] · B[k × n], with
//   A  row-major, broadcast element by element; or column-major (`_at`),
//   B  packed in panels of `panel` columns: panel p begins at p·panel·k and holds [k][width], where
//      width = panel, or for the last one n rounded up to whole vectors,
//   C  row-major FP32, computed in register tiles of kTileRows rows × panel columns.
// k counts 32-bit units: one FP32, or, in the table with unit = 2, a pair of BF16 adjacent along k
// (an odd last one is paired with 0). Operand buffers are typed float* either way.
// Rows of A and C are padded to kTileRows; a mask appears as one span per tile of kTileRows rows.
// Spans count elements; those of a tile are multiples of `unit` at both ends (see join_spans).
#pragma once

#include <cstdint>

#include "core/device.h"
#include "fa3/fa3.h"
#include "plan/cpu/scratch.h"

namespace fa3::cpu {

// Rows of a caller's tensor: element (r, c) at data[r·stride + c], or of pages at data[begin[r] +
// c].
struct Rows {
  const void* data = nullptr;
  fa3_dtype dtype = FA3_F32;
  int64_t stride = 0;  // in elements
  int rows = 0;
  int cols = 0;
  const int64_t* begin = nullptr;  // [rows], in elements

  int64_t at(int64_t r) const { return begin != nullptr ? begin[r] : r * stride; }
};

// Scores of one block, to become probabilities; all arrays have one entry per row.
struct SoftmaxBlock {
  float* s = nullptr;  // in: raw scores; out: P (FP32, or BF16 in the bf16 tables), row-major
  int64_t ld = 0;      // floats between rows of s
  int rows = 0;
  const Span* visible = nullptr;  // columns that a row sees; the rest of `tile` becomes 0
  const Span* tile = nullptr;  // per tile of kTileRows rows: columns that the P·V GEMM will read
  float* row_max = nullptr;    // running maximum m of the scores as stored in s (−inf at first)
  float* row_sum = nullptr;    // running Σ p
  // Out: factor for what was accumulated before, exp2((m_old − m_new)·scale_log2e).
  float* rescale = nullptr;
  float scale_log2e = 1;              // > 0: p = exp2(s·scale_log2e − m·scale_log2e)
  float softcap_in = 0;               // softcap on: s ← tanh(s·softcap_in) first; 0 = off
  const ScoreTerms* terms = nullptr;  // applied next; nullptr = none
};

// P and dS of one block of the backward, transposed: row = key, column = query.
struct GradBlock {
  float* s = nullptr;             // in: raw scores Sᵀ; out: P, FP32 or BF16 as in SoftmaxBlock
  float* dp = nullptr;            // in: dPᵀ = V·dOᵀ; out: dS (unscaled), likewise
  int64_t ld = 0;                 // floats between rows of s and of dp
  int rows = 0;                   // keys
  const Span* visible = nullptr;  // queries that see a key
  // Per tile of keys: columns that must be defined (0 where not visible).
  const Span* tile = nullptr;
  // Per query: LSE in base 2, as a sum of two floats, since |LSE| may be large and p needs its
  // fraction; +inf and 0 make P = 0.
  const float* lse_high = nullptr;
  const float* lse_low = nullptr;
  const float* delta = nullptr;  // per query: rowsum(dO ∘ O) − dLSE
  // Per query, subtracted from the score before anything else: the largest score where LSE is
  // coarse (coarse_lse.h), 0 elsewhere. NULL where the block has no such query.
  const float* largest = nullptr;
  float scale_log2e = 1;
  float softcap_in = 0;               // as in SoftmaxBlock
  const ScoreTerms* terms = nullptr;  // likewise
  bool of_mask = false;               // dS of what is added after softcap: without tanh's slope
};

struct Kernels {
  int lanes = 0;  // floats per vector
  int panel = 0;  // columns of a full panel of B
  int unit = 1;   // elements per 32-bit unit of depth

  int units(int64_t elements) const { return static_cast<int>((elements + unit - 1) / unit); }

  // B = srcᵀ: k = columns of src, n = rows of src.
  void (*pack_transposed)(const Rows& src, float* b);
  // B = src: k = rows of src, n = columns of src. True when every element is finite.
  bool (*pack_rows)(const Rows& src, float* b);
  // A = factor·src in operand type, ld floats between rows, columns zero-filled to ld. True when
  // all finite.
  bool (*copy_rows)(const Rows& src, float factor, float* a, int64_t ld);

  // C = A·B in the columns of each tile (rounded out to whole vectors), whole depth k. k, here and
  // below: in units.
  void (*gemm_columns)(int tiles, int k, const float* a, int64_t lda, const float* b, int n,
                       float* c, int64_t ldc, const Span* columns);
  // C += A·B over the depth of each tile, all n columns. `first`: C = A·B.
  void (*gemm_depth)(int tiles, int k, const float* a, int64_t lda, const float* b, int n, float* c,
                     int64_t ldc, const Span* depth, bool first);
  // The same with A column-major: unit (row, depth) at a[depth·lda + row].
  void (*gemm_depth_at)(int tiles, int k, const float* a, int64_t lda, const float* b, int n,
                        float* c, int64_t ldc, const Span* depth, bool first);
  // gemm_depth and gemm_depth_at row by row with a depth per row: no operand outside a row's own
  // depth is touched, for blocks where 0 × (NaN or Inf) could leak. rows instead of tiles.
  void (*gemm_depth_rows)(int rows, int k, const float* a, int64_t lda, const float* b, int n,
                          float* c, int64_t ldc, const Span* depth, bool first);
  void (*gemm_depth_at_rows)(int rows, int k, const float* a, int64_t lda, const float* b, int n,
                             float* c, int64_t ldc, const Span* depth, bool first);

  // For few rows, and keys that are read once, in place (FP32 tables): C = A·keysᵀ, and C +=
  // A·values.
  void (*few_dot)(int rows, const float* a, int64_t lda, const Rows& keys, float* c, int64_t ldc);
  void (*few_add)(int rows, const float* a, int64_t lda, const Rows& values, float* c, int64_t ldc);

  void (*softmax)(const SoftmaxBlock& block);
  void (*softmax_grad)(const GradBlock& block);
  // Takes the keys of a block into the largest score and the sum Σ exp2((score − largest)·scale) of
  // each query, −inf and 0 at first. Reads s, visible, tile, scale_log2e, softcap_in and terms, and
  // leaves scores in s.
  void (*row_sums)(const GradBlock& block, float* largest, float* sum);
  // dS of `rows` keys (row-major, as softmax_grad leaves it) as column-major operand A of dQ: unit
  // (query, key pair). NULL where dS itself is that operand (unit = 1).
  void (*pair_rows)(int rows, int cols, const float* ds, int64_t ld, float* a, int64_t lda);
  // C rows · factor[row], n columns (a multiple of lanes); rows with factor 1 are skipped.
  void (*scale_rows)(int rows, int n, float* c, int64_t ldc, const float* factor);
  // dst = c·factor[row], converted: rows × cols into a caller's tensor.
  void (*store_rows)(const float* c, int64_t ldc, const float* factor, int rows, int cols,
                     fa3_dtype dtype, void* dst, int64_t dst_stride);
  // out[r] = Σ_c a(r, c)·b(r, c).
  void (*row_dot)(const Rows& a, const Rows& b, float* out);
};

// The table of an instruction set for operands of a type; isa must be one that this processor has.
// few_rows: the one that has few_dot and few_add.
const Kernels& kernels(Isa isa, fa3_dtype dtype, bool few_rows = false);

}  // namespace fa3::cpu
