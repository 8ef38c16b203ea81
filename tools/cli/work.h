// SPDX-License-Identifier: BSD-3-Clause
// work.h — the work of a call: sequences, the keys that each query sees, FLOPs.
#pragma once

#include <cstdint>

#include "fa3/fa3.h"

namespace fa3::cli {

// One sequence of a call. Rows count from the batch entry's first one (dense) or from the tensor's
// (varlen).
struct Sequence {
  int64_t q_begin = 0, q_len = 0;
  int64_t kv_begin = 0, kv_len = 0;
  const int32_t* q_ids = nullptr;  // sequence ids of its rows; nullptr = none
  const int32_t* kv_ids = nullptr;
};

// The sequences of valid arguments with data: how many, and the b-th one, after seqused.
int64_t sequence_count(const fa3_forward_args& args);
Sequence sequence(const fa3_forward_args& args, int64_t b);

// Keys [first, last) that the mask keeps for query `row` of a sequence.
struct KeyRange {
  int64_t first = 0, last = 0;
};
KeyRange visible_keys(const fa3_forward_args& args, const Sequence& sequence, int64_t row);
// Whether sequence ids let query `row` see a key.
inline bool same_id(const Sequence& s, int64_t row, int64_t key) {
  return s.q_ids == nullptr || s.q_ids[row] == s.kv_ids[key];
}

// Floating-point operations, counted over the visible pairs of query and key only: each costs
// 2·(d_qk + d_v) per query head forward, 2.5 times that backward.
double forward_flops(const fa3_forward_args& args);
inline constexpr double kBackwardToForward = 2.5;

// Bytes of the keys and values that some query of their sequence sees by lengths and mask, counted
// once for each sequence.
double kv_bytes(const fa3_forward_args& args);

}  // namespace fa3::cli
