// SPDX-License-Identifier: BSD-3-Clause
// score_offset_args.h — what a launch of the kernel that finds what k_offset adds to scores takes.
#pragma once

#include "device/sm90/fwd/args.h"

namespace fa3::sm90 {

struct ScoreOffsetArgs {
  const u8* q;
  i64 q_batch, q_row, q_head;  // strides in elements; varlen: q_batch = 0
  RowAxis q_axis;
  FwdScale q_scale;
  const float* k_offset;  // (batch, heads_kv, head_dim)
  i64 k_offset_batch, k_offset_head;
  i32 batch, group_size, head_dim;
  float softmax_scale;
  float* to;  // FwdArgs::score_offset
  i64 to_batch, to_head;
  FwdColumns q_columns;
};

}  // namespace fa3::sm90
