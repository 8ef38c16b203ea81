// SPDX-License-Identifier: BSD-3-Clause
// product.h — one run of the wgmma program (device/selftest/wgmma.cuh): operands and accumulators
// into buffers and arguments.
#pragma once

#include <string>

#include "conformance/cases/case.h"
#include "conformance/model/operand.h"
#include "device/selftest/wgmma.cuh"

namespace fa3::selftest {

inline constexpr int kProductRows = 64;

struct Product {
  WgmmaCase which;
  Operand a, b;  // as deep as the program's steps
  SmemLayout a_layout, b_layout;
  bool accumulate = false;
};

// The program; with all its steps the name expression does not say how many.
Program product_program(const WgmmaCase& which, int steps = kWgmmaSteps);

// c: accumulators before, [register][thread]: word 128·i + thread is register i of a thread;
// after: the expected accumulators, in the same order.
enum ProductBuffer : size_t { kProductA, kProductB, kProductC, kProductD };
Experiment product_experiment(const Product& product, const std::vector<uint32_t>& c,
                              std::optional<Expected> after);

}  // namespace fa3::selftest
