// SPDX-License-Identifier: BSD-3-Clause
// fwd_no_sequences_test.cpp — the forward kernel of Hopper in the simulator, given no sequence.
#include <limits>

#include "tests/sim/simulator.h"

namespace fa3 {
namespace {

using verify::Config;
using verify::Tensors;

// Varlen queries have rows, cu_seqlens_q = {0} says that they belong to no sequence.
TEST(SimFwdNoSequences, RowsAreEmpty) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
    for (const bool is_varlen_kv : {true, false}) {
      Config c = causal();
      c.mask = mask;
      c.varlen_q = {150};
      if (is_varlen_kv) c.varlen_kv = {90};
      const Tensors t = verify::make_tensors(c);
      fa3_forward_args args = verify::forward_args(c, t);
      args.cu_seqlens_q.shape[0] = 1;
      if (is_varlen_kv) {
        args.cu_seqlens_kv.shape[0] = 1;
      } else {
        args.k.shape[0] = args.v.shape[0] = 0;
      }
      ASSERT_EQ(fa3_forward(simulator(), &args, nullptr), FA3_OK) << fa3_last_error();
      for (int64_t row = 0; row < 150; ++row) {
        for (int64_t head = 0; head < c.heads_q; ++head) {
          ASSERT_EQ(verify::get(args.lse, {head, row}), -std::numeric_limits<double>::infinity());
          for (int64_t i = 0; i < c.head_dim_v; ++i)
            ASSERT_EQ(verify::get(args.o, {row, head, i}), 0) << row << ", " << head << ", " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa3
