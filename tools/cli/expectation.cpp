// SPDX-License-Identifier: BSD-3-Clause
// expectation.cpp — compares two tensors element by element.
#include "expectation.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "host_tensor.h"
#include "tools/verify/tensor.h"

namespace fa3::cli {
namespace {

std::string index_text(const verify::Index& index, int rank) {
  std::string text;
  for (int d = 0; d < rank; ++d) text += fmt::format("{}{}", d == 0 ? "" : ", ", index[d]);
  return "[" + text + "]";
}

}  // namespace

// F32: sums of some thousand terms in another order. 16 bit: P and O are rounded to the type, with
// errors of a few units each.
double default_tolerance(int32_t dtype) {
  switch (dtype) {
    case FA3_F16:
      return 0x1p-9;
    case FA3_BF16:
      return 0x1p-6;
    default:
      return 1e-5;
  }
}

Expectation compare_expected(const fa3_tensor& ours, const fa3_tensor& expected,
                             const std::string& name, double tolerance) {
  bool same = ours.rank == expected.rank;
  for (int d = 0; same && d < ours.rank; ++d) same = ours.shape[d] == expected.shape[d];
  if (!same) {
    const auto shape = [](const fa3_tensor& t) {
      return shape_text(std::vector<int64_t>(t.shape, t.shape + t.rank));
    };
    fail(kBadInput, "--expect {}: shape {}, need that of o, {}", name, shape(expected),
         shape(ours));
  }
  Expectation e;
  double largest = 0, sum = 0, worst = -1;
  const int last = ours.rank - 1;
  verify::for_each_row(ours, [&](verify::Index at, void*) {
    for (int64_t c = 0; c < ours.shape[last]; ++c) {
      at[last] = c;
      const double got = verify::get(ours, at), want = verify::get(expected, at);
      const bool same = got == want || (std::isnan(got) && std::isnan(want));
      const double error = same ? 0 : std::abs(got - want);
      if (std::isfinite(want)) largest = std::max(largest, std::abs(want));
      sum += error * error;
      if (error > worst || (std::isnan(error) && !std::isnan(worst))) {  // the first NaN stays
        worst = e.max_err = error;
        e.where = index_text(at, ours.rank);
      }
    }
  });
  const int64_t count = verify::element_count(ours);
  e.rmse = count > 0 ? std::sqrt(sum / static_cast<double>(count)) : 0;
  e.bound = tolerance * largest;
  e.ok = std::isfinite(e.max_err) && e.max_err <= e.bound;
  return e;
}

}  // namespace fa3::cli
