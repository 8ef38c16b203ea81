// SPDX-License-Identifier: BSD-3-Clause
// args.h — what a launch of the kernel that merges a caller's parts takes.
#pragma once

#include "device/sm90/common/sink.h"
#include "device/types.h"

namespace fa3::sm90 {

// Element (part p, b, i, h, c) lies at data + p·part + b·batch + i·row + h·head + c.
template <class T>
struct MergeTensor {
  T* data;
  i64 part, batch, row, head;
};

struct MergeArgs {
  MergeTensor<const void> o_parts;
  MergeTensor<const float> lse_parts;
  MergeTensor<void> o;
  MergeTensor<float> lse;  // data null: not wanted
  i32 parts, batch, heads, head_dim;
  u32 pieces, row_pieces;  // of a batch entry, below 2^31; of a row
  SinkArgs sinks;          // of the heads
  bool wide;               // every lane's columns of o_parts and o lie at multiples of 16 bytes
};

}  // namespace fa3::sm90
