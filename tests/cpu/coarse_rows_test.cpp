// SPDX-License-Identifier: BSD-3-Clause
// coarse_rows_test.cpp — the cpu backend's gradients of rows whose LSE has no resolution.
#include "tests/kit/coarse_rows.h"

#include "tests/kit/context.h"

namespace fa3 {
namespace {

using kit::CoarseCase;
using kit::CoarseRows;

fa3_context* context() {
  static const kit::Context context = kit::make_context();
  return context.get();
}

class CpuCoarseRows : public ::testing::TestWithParam<int32_t> {
 protected:
  void check(CoarseCase c) const {
    c.dtype = GetParam();
    CoarseRows(c).check(context());
  }
};

TEST_P(CpuCoarseRows, HiddenByAnyNumber) {
  for (const float hidden : kit::kHiddenBy) {
    SCOPED_TRACE(hidden);
    check({.hidden = hidden});
  }
}

TEST_P(CpuCoarseRows, WithOtherTerms) {
  check({.causal = true});
  check({.hidden = -1e6f, .causal = true, .queries = 140, .keys = 70});
  check({.hidden = -1e7f, .softcap = 4});
  check({.hidden = -1e5f, .alibi = true});
  check({.hidden = std::numeric_limits<float>::lowest(), .softcap = 2, .alibi = true});
  check({.hidden = 1e9f});
}

TEST_P(CpuCoarseRows, SeveralHeadsAndSequences) {
  check({.batch = 3, .heads_q = 4, .heads_kv = 2, .queries = 200, .keys = 500, .head_dim = 24});
  check({.batch = 2, .queries = 1, .keys = 600, .head_dim = 72});
}

INSTANTIATE_TEST_SUITE_P(Types, CpuCoarseRows, ::testing::Values(FA3_F32, FA3_F16, FA3_BF16));

}  // namespace
}  // namespace fa3
