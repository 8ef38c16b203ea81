// SPDX-License-Identifier: BSD-3-Clause
// kernel.cpp — whole kernels of many instructions: GEMM, attention, the chain of two FP8
// GEMMs.
#include <fmt/core.h>

#include <cmath>

#include "conformance/cases/cases.h"
#include "conformance/model/numbers.h"
#include "conformance/model/operand.h"
#include "device/selftest/attention.cuh"
#include "device/selftest/chain8.cuh"
#include "device/selftest/gemm.cuh"

namespace fa3::selftest {
namespace {

TmaType tma_type(MmaType type) {
  if (type == MmaType::kF16) return TmaType::kF16;
  return type == MmaType::kBf16 ? TmaType::kBf16 : TmaType::kU8;
}

TensorMapSpec matrix_spec(const char* name, TmaType type, int columns, int rows, int box_columns,
                          int box_rows, Swizzle swizzle = Swizzle::k128) {
  TensorMapSpec spec;
  spec.name = name;
  spec.type = type;
  spec.rank = 2;
  spec.dim[0] = static_cast<u64>(columns);
  spec.dim[1] = static_cast<u64>(rows);
  spec.stride_bytes[1] = static_cast<u64>(columns * size_of(type));
  spec.box[0] = static_cast<u32>(box_columns);
  spec.box[1] = static_cast<u32>(box_rows);
  spec.swizzle = swizzle;
  return spec;
}

// A matrix of values that its type has.
struct Matrix {
  MmaType type;
  int rows, columns;
  std::vector<double> value;

  Matrix(MmaType type, int rows, int columns)
      : type(type), rows(rows), columns(columns), value(static_cast<size_t>(rows * columns)) {}

  double& at(int row, int column) { return value[static_cast<size_t>(row * columns + column)]; }
  double at(int row, int column) const {
    return value[static_cast<size_t>(row * columns + column)];
  }
  void fill_integers(int most, Random& random) {
    for (double& v : value) v = random.integer(-most, most);
  }
  Bytes bytes(bool transposed = false) const {
    const size_t es = static_cast<size_t>(size_of(type));
    Bytes out(value.size() * es);
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        const uint32_t code = code_of(type, at(row, column));
        const int to = transposed ? column * rows + row : row * columns + column;
        std::memcpy(out.data() + static_cast<size_t>(to) * es, &code, es);
      }
    }
    return out;
  }
};

// A·Bᵀ.
Matrix product(const Matrix& a, const Matrix& b, MmaType type) {
  Matrix c(type, a.rows, b.rows);
  for (int row = 0; row < a.rows; ++row) {
    for (int column = 0; column < b.rows; ++column) {
      for (int k = 0; k < a.columns; ++k) c.at(row, column) += a.at(row, k) * b.at(column, k);
    }
  }
  return c;
}

// ---- GEMM ---------------------------------------------------------------------------------------

// Two tiles in m, two in n, five in k. Sums of integers: exact until they become BF16.
Experiment make_gemm(const GemmConfig& config, u32 smem_bytes, Random& random) {
  const int tile_k = config.tile_k(), tile_n = config.tile_n;
  Matrix a(config.type, 2 * GemmConfig::kTileM, 5 * tile_k), b(config.type, 2 * tile_n, a.columns);
  a.fill_integers(2, random);
  b.fill_integers(2, random);
  const Matrix c = product(a, b, MmaType::kBf16);
  const TmaType type = tma_type(config.type);
  Experiment experiment;
  experiment.shape.grid[0] = experiment.shape.grid[1] = 2;
  experiment.shape.threads = static_cast<u32>(config.threads());
  experiment.shape.smem_bytes = smem_bytes;
  experiment.buffers = {{"a", a.bytes(), {}},
                        {"b", b.bytes(config.b_rows_along_n), {}},
                        {"c", Bytes(2 * c.value.size()), Expected{2, c.bytes()}}};
  experiment.maps = {
      {matrix_spec("a", type, a.columns, a.rows, tile_k, GemmConfig::kTileM), 0},
      {config.b_rows_along_n ? matrix_spec("b", type, b.rows, b.columns, 64, tile_k)
                             : matrix_spec("b", type, b.columns, b.rows, tile_k, tile_n),
       1},
      {matrix_spec("c", TmaType::kBf16, c.columns, c.rows, 64, 64), 2}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(GemmArgs{placed.maps[0], placed.maps[1], placed.maps[2], 5});
  };
  return experiment;
}

template <GemmConfig kConfig>
void add_gemm(std::vector<Case>& cases) {
  cases.push_back(
      {fmt::format("kernel/gemm/{}/n{}{}{}", short_name(kConfig.type), kConfig.tile_n,
                   kConfig.b_rows_along_n ? "/b-mn" : "",
                   kConfig.a_in_registers ? "/a-in-registers" : ""),
       device_program("device/selftest/gemm.cuh",
                      fmt::format("fa3::gemm<fa3::GemmConfig{{{}, {}, {}, {}, {}}}>",
                                  enumerator(kConfig.type), kConfig.tile_n, kConfig.stages,
                                  kConfig.b_rows_along_n, kConfig.a_in_registers)),
       [](Random& random) { return make_gemm(kConfig, sizeof(GemmSmem<kConfig>), random); }});
}

// ---- Attention ----------------------------------------------------------------------------------

// O and LSE of rows of Q, and how far the kernel's may be from them.
struct Attended {
  Matrix o;
  std::vector<float> o_bound, lse;
};

// Bounds: P and O are rounded to BF16, by 2^-9 of their size at most, and so is what is expected.
// Accumulation in FP32 and ex2 add less than a tenth of that.
Attended attend(const Matrix& q, const Matrix& k, const Matrix& v, double scale) {
  Attended out{Matrix(MmaType::kBf16, q.rows, v.columns), {}, {}};
  const Matrix s = product(q, k, MmaType::kBf16);
  std::vector<double> p(static_cast<size_t>(k.rows));
  for (int row = 0; row < q.rows; ++row) {
    double sum = 0;
    for (int j = 0; j < k.rows; ++j) {
      sum += p[static_cast<size_t>(j)] = std::exp(s.at(row, j) * scale);
    }
    out.lse.push_back(static_cast<float>(std::log(sum)));
    for (int d = 0; d < v.columns; ++d) {
      double o = 0, magnitude = 0;
      for (int j = 0; j < k.rows; ++j) {
        const double term = p[static_cast<size_t>(j)] / sum * v.at(j, d);
        o += term;
        magnitude += std::fabs(term);
      }
      out.o.at(row, d) = o;
      out.o_bound.push_back(static_cast<float>(1.1 * 0x1p-9 * (magnitude + 2 * std::fabs(o))));
    }
  }
  return out;
}

Experiment make_attention(Random& random) {
  constexpr int kTile = AttentionSizes::kTile, kDim = AttentionSizes::kHeadDim, kTilesKv = 3;
  constexpr float kLseBound = 1e-5f;
  const double scale = 1 / std::sqrt(double{kDim});
  Matrix q(MmaType::kBf16, 2 * kTile, kDim), k(MmaType::kBf16, kTilesKv * kTile, kDim), v = k;
  for (Matrix* matrix : {&q, &k, &v}) {
    for (double& x : matrix->value) x = decode(kBf16, encode(kBf16, 4 * random.unit() - 2));
  }
  const Attended want = attend(q, k, v, scale);
  Experiment experiment;
  experiment.shape.grid[0] = 2;
  experiment.shape.threads = AttentionSizes::kThreads;
  experiment.shape.smem_bytes = sizeof(AttentionSmem);
  const std::vector<float> lse_bound(want.lse.size(), kLseBound);
  experiment.buffers = {
      {"q", q.bytes(), {}},
      {"k", k.bytes(), {}},
      {"v", v.bytes(), {}},
      {"o", Bytes(2 * want.o.value.size()), Expected{2, want.o.bytes(), want.o_bound}},
      {"lse", Bytes(4 * want.lse.size()), Expected{4, to_bytes(want.lse), lse_bound}}};
  const auto map = [&](const char* name, const Matrix& matrix, int box_rows) {
    return matrix_spec(name, TmaType::kBf16, kDim, matrix.rows, 64, box_rows);
  };
  experiment.maps = {{map("q", q, kTile), 0},
                     {map("k", k, kTile), 1},
                     {map("v", v, kTile), 2},
                     {map("o", q, 64), 3}};
  experiment.args = [scale](const Placed& placed) {
    return bytes_of(AttentionArgs{placed.maps[0], placed.maps[1], placed.maps[2], placed.maps[3],
                                  placed.at<float>(4), kTilesKv,
                                  static_cast<float>(scale * 1.4426950408889634)});
  };
  return experiment;
}

// ---- FP8 ----------------------------------------------------------------------------------------

// Scores are integers up to 16, which E4M3 has: rows of K have four elements that are not zero.
Experiment make_chain8(bool transposed, Random& random) {
  constexpr int kRows = 64, kDim = 128;
  Matrix q(MmaType::kE4m3, kRows, kDim), k = q, v = q;
  q.fill_integers(2, random);
  v.fill_integers(7, random);
  for (int row = 0; row < kRows; ++row) {
    for (int i = 0; i < 4; ++i) k.at(row, random.integer(0, kDim - 1)) = random.integer(-2, 2);
  }
  const Matrix s = product(q, k, MmaType::kE4m3);
  std::vector<float> o(kRows * kDim);
  for (int row = 0; row < kRows; ++row) {
    for (int d = 0; d < kDim; ++d) {
      double sum = 0;
      for (int j = 0; j < kRows; ++j) sum += s.at(row, j) * v.at(j, d);
      o[static_cast<size_t>(row * kDim + d)] = static_cast<float>(sum);
    }
  }
  Experiment experiment;
  experiment.shape.threads = 128;
  experiment.shape.smem_bytes = sizeof(Chain8Smem);
  experiment.buffers = {{"q", q.bytes(), {}},
                        {"k", k.bytes(), {}},
                        {"v", v.bytes(transposed), {}},
                        {"o", Bytes(4 * o.size()), Expected{4, to_bytes(o)}}};
  experiment.maps = {
      {matrix_spec("q", TmaType::kU8, kDim, kRows, kDim, kRows), 0},
      {matrix_spec("k", TmaType::kU8, kDim, kRows, kDim, kRows), 1},
      {transposed ? matrix_spec("v", TmaType::kU8, kRows, kDim, kRows, kDim, Swizzle::k64)
                  : matrix_spec("v", TmaType::kU8, kDim, kRows, kDim, kRows),
       2}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(
        Chain8Args{placed.maps[0], placed.maps[1], placed.maps[2], placed.at<float>(3)});
  };
  return experiment;
}

}  // namespace

void add_kernel_cases(std::vector<Case>& cases) {
  add_gemm<GemmConfig{MmaType::kBf16, 256, 3, false, false}>(cases);
  add_gemm<GemmConfig{MmaType::kF16, 192, 3, true, false}>(cases);
  add_gemm<GemmConfig{MmaType::kE4m3, 128, 4, false, false}>(cases);
  add_gemm<GemmConfig{MmaType::kBf16, 128, 4, true, true}>(cases);
  add_gemm<GemmConfig{MmaType::kE5m2, 64, 4, false, true}>(cases);
  cases.push_back({"kernel/attention",
                   device_program("device/selftest/attention.cuh", "fa3::attention"),
                   [](Random& random) { return make_attention(random); }});
  for (const bool transposed : {false, true}) {
    cases.push_back(
        {transposed ? "kernel/chain8/v-transposed" : "kernel/chain8",
         device_program("device/selftest/chain8.cuh", fmt::format("fa3::chain8<{}>", transposed)),
         [=](Random& random) { return make_chain8(transposed, random); }});
  }
}

}  // namespace fa3::selftest
