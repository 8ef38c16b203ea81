// SPDX-License-Identifier: BSD-3-Clause
// matrix.cpp — ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14.5.15 to 17).
#include "device/selftest/matrix.cuh"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "conformance/cases/cases.h"

namespace fa3::selftest {
namespace {

using Image = std::array<std::array<uint16_t, 8>, kMatrixRows>;

// Element of a matrix that half `half` of a lane's register holds: {row, column}.
std::pair<size_t, size_t> held(size_t lane, size_t half, bool transposed) {
  const size_t g = lane / 4, q = 2 * (lane % 4) + half;
  return transposed ? std::pair{q, g} : std::pair{g, q};
}

Experiment make(const MatrixCase& which, Random& random) {
  const auto matrices = static_cast<size_t>(which.matrices);
  // Lane 8j + i gives row i of matrix j: here some row of the image, each one once.
  std::vector<u32> rows(32);
  for (size_t i = 0; i < 32; ++i) rows[i] = static_cast<u32>(i);
  for (size_t i = 31; i > 0; --i) {
    std::swap(rows[i], rows[static_cast<size_t>(random.integer(0, static_cast<int>(i)))]);
  }
  Image image{};
  for (auto& row : image) {
    for (uint16_t& element : row) element = static_cast<uint16_t>(random.word());
  }
  std::vector<u32> registers(32 * matrices);
  for (u32& word : registers) word = random.word();

  const std::vector<Image> image_before{image};
  const std::vector<u32> registers_before = registers;
  for (size_t j = 0; j < matrices; ++j) {
    for (size_t lane = 0; lane < 32; ++lane) {
      u32& word = registers[32 * j + lane];
      if (which.op == MatrixOp::kLoad) word = 0;
      for (size_t half = 0; half < 2; ++half) {
        const auto [row, column] = held(lane, half, which.transposed);
        uint16_t& element = image[rows[8 * j + row]][column];
        if (which.op == MatrixOp::kLoad) {
          word |= static_cast<u32>(element) << (16 * half);
        } else {
          element = static_cast<uint16_t>(word >> (16 * half));
        }
      }
    }
  }

  Experiment experiment;
  experiment.shape.threads = 32;
  experiment.shape.smem_bytes = sizeof(MatrixSmem);
  experiment.buffers = {{"rows", to_bytes(rows), {}},
                        {"image", to_bytes(image_before), {}},
                        {"registers", to_bytes(registers_before), {}}};
  if (which.op == MatrixOp::kLoad) {
    experiment.buffers[2].after = Expected{4, to_bytes(registers), {}};
  } else {
    experiment.buffers[1].after = Expected{2, to_bytes(std::vector<Image>{image}), {}};
  }
  experiment.args = [](const Placed& placed) {
    return bytes_of(MatrixArgs{placed.at<u32>(0), placed.at<u32>(1), placed.at<u32>(2)});
  };
  return experiment;
}

// movmatrix: the first 32 words of the image become the transposed matrix.
Experiment make_move(Random& random) {
  std::vector<u32> registers(32), moved(4 * kMatrixRows);
  std::array<std::array<uint16_t, 8>, 8> matrix{};
  for (size_t lane = 0; lane < 32; ++lane) {
    registers[lane] = random.word();
    for (size_t half = 0; half < 2; ++half) {
      const auto [row, column] = held(lane, half, false);
      matrix[row][column] = static_cast<uint16_t>(registers[lane] >> (16 * half));
    }
  }
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t half = 0; half < 2; ++half) {
      const auto [row, column] = held(lane, half, true);
      moved[lane] |= static_cast<u32>(matrix[row][column]) << (16 * half);
    }
  }
  Experiment experiment;
  experiment.shape.threads = 32;
  experiment.shape.smem_bytes = sizeof(MatrixSmem);
  experiment.buffers = {{"rows", Bytes(128), {}},
                        {"image", Bytes(4 * moved.size()), Expected{4, to_bytes(moved), {}}},
                        {"registers", to_bytes(registers), {}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(MatrixArgs{placed.at<u32>(0), placed.at<u32>(1), placed.at<u32>(2)});
  };
  return experiment;
}

std::string expression(const MatrixCase& which) {
  constexpr const char* kOps[] = {"kLoad", "kStore", "kMove"};
  return fmt::format(
      "fa3::selftest::matrix<fa3::selftest::MatrixCase{{fa3::selftest::MatrixOp::{}, {}, {}}}>",
      kOps[static_cast<size_t>(which.op)], which.matrices, which.transposed);
}

}  // namespace

void add_matrix_cases(std::vector<Case>& cases) {
  const char* const header = "device/selftest/matrix.cuh";
  for (const MatrixOp op : {MatrixOp::kLoad, MatrixOp::kStore}) {
    for (const int matrices : {1, 2, 4}) {
      for (const bool transposed : {false, true}) {
        const MatrixCase which{op, matrices, transposed};
        cases.push_back({fmt::format("matrix/{}matrix/x{}{}", op == MatrixOp::kLoad ? "ld" : "st",
                                     matrices, transposed ? "/trans" : ""),
                         device_program(header, expression(which)),
                         [=](Random& random) { return make(which, random); }});
      }
    }
  }
  cases.push_back({"matrix/movmatrix",
                   device_program(header, expression({MatrixOp::kMove, 1, true})),
                   [](Random& random) { return make_move(random); }});
}

}  // namespace fa3::selftest
