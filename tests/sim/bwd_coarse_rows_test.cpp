// SPDX-License-Identifier: BSD-3-Clause
// bwd_coarse_rows_test.cpp — Hopper's gradients of rows whose LSE has no resolution, simulated: the
// kernels of head dims 64, 128 and 256, what hides the rows, and that of dattn_mask.
#include <iterator>

#include "tests/kit/coarse_rows.h"
#include "tests/kit/thorough.h"
#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using kit::CoarseCase;
using kit::CoarseRows;

void check(CoarseCase c) {
  static const kit::Context cpu = kit::make_context();
  c.dtype = FA3_BF16;
  // Of head dim 256 the simulator has no forward with a mask.
  CoarseRows(c).check(c.head_dim > 128 ? cpu.get() : simulator(), simulator());
}

TEST(SimBwdCoarseRows, HiddenByAnyNumber) {
  for (size_t i = 0; i < std::size(kit::kHiddenBy); ++i) {
    if (!kit::due(i, 2)) continue;
    SCOPED_TRACE(kit::kHiddenBy[i]);
    check({.hidden = kit::kHiddenBy[i], .queries = 40});
  }
}

TEST(SimBwdCoarseRows, HeadDimsAndBands) {
  check({.hidden = -1e7f, .batch = 2, .heads_q = 1, .queries = 70, .keys = 60, .head_dim = 40});
  if (kit::kSanitized) return;  // the simulator has head dim 64 only
  check({.causal = true, .queries = 100, .keys = 100, .head_dim = 128});
  check({.hidden = -1e6f, .heads_q = 1, .queries = 30, .head_dim = 256});
}

}  // namespace
}  // namespace fa3
