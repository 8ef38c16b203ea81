// SPDX-License-Identifier: BSD-3-Clause
// simulator.h — a context of backend sim, and a problem of several tiles, for tests of the forward
// kernel through the C interface.
#pragma once

#include "tests/kit/context.h"

namespace fa3 {

inline fa3_context* simulator() {
  static const kit::Context context = [] {
    fa3_context_options options = kit::default_options();
    options.backend = FA3_BACKEND_SIM;
    return kit::make_context(options);
  }();
  return context.get();
}

inline verify::Config causal() {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.head_dim_qk = c.head_dim_v = 64;
  c.heads_q = 2;
  c.seqlen_q = c.seqlen_kv = 200;
  c.mask = FA3_MASK_CAUSAL;
  c.alignment = 16;
  return c;
}

}  // namespace fa3
