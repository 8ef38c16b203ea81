// SPDX-License-Identifier: BSD-3-Clause
// options.h — the numbers of a call that its problem has as the arguments do, but for defaults. A
// new one needs a row of scalars.h beside its member here: that reads, compares and explains it.
#pragma once

#include <cstdint>

namespace fa3 {

struct Options {
  int64_t left = 0;  // window only; −1 = unbounded
  int64_t right = 0;
  double softmax_scale = 0;     // of a problem resolved: never 0 for "default"
  double softcap = 0;           // 0 = off
  int32_t num_splits = 0;       // the most parts that keys are computed in; 0 = any
  int32_t sm_margin = 0;        // SMs that persistent kernels leave free
  int64_t attention_chunk = 0;  // keys of a chunk; 0 = there are none
  int32_t batch_invariant = 0;  // 1: bits of a row depend on its own sequence and position alone

  bool operator==(const Options&) const = default;
};

}  // namespace fa3
