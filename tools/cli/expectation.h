// SPDX-License-Identifier: BSD-3-Clause
// expectation.h — compares an output with a tensor from another implementation.
#pragma once

#include <string>

#include "fa3/fa3.h"

namespace fa3::cli {

struct Expectation {
  bool ok = true;
  double max_err = 0;  // largest |ours − expected|; NaN or Inf where only one of them is
  double rmse = 0;     // √mean (ours − expected)²
  double bound = 0;    // what max_err may be: tolerance · largest finite |expected|
  std::string where;   // index of the largest difference
};

// How much two exact implementations that round differently may differ, relative to the largest
// expected element.
double default_tolerance(int32_t dtype);

// Compares o with the tensor `name` of its shape; NaN and Inf must be in the same places. Throws
// CliError{kBadInput} when the shapes differ.
Expectation compare_expected(const fa3_tensor& ours, const fa3_tensor& expected,
                             const std::string& name, double tolerance);

}  // namespace fa3::cli
