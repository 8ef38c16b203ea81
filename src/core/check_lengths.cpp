// SPDX-License-Identifier: BSD-3-Clause
// check_lengths.cpp — the rules of fa3.h for cu_seqlens and seqused.
#include "core/check_lengths.h"

#include <fmt/core.h>

namespace fa3 {
namespace {

// The axis' tensors: names for messages, values.
struct Cuts {
  const char* op;
  const char* cu_name;
  const char* used_name;
  const char* max_name;
  const int32_t* cu;
  const int32_t* used;
};

Status check_cu_seqlens(const Cuts& x, const SeqAxis& axis, int64_t batch) {
  if (x.cu[0] != 0) {
    return invalid("{}: {}[0]={}, need 0; the first sequence starts at row 0", x.op, x.cu_name,
                   x.cu[0]);
  }
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t len = int64_t{x.cu[b + 1]} - x.cu[b];
    if (len < 0) {
      return invalid("{}: {}[{}]={} is below {}[{}]={}; need values that never decrease", x.op,
                     x.cu_name, b + 1, x.cu[b + 1], x.cu_name, b, x.cu[b]);
    }
    if (x.cu[b + 1] > axis.rows) {
      return invalid("{}: {}[{}]={} is beyond the {} rows of the varlen tensors; need at most that",
                     x.op, x.cu_name, b + 1, x.cu[b + 1], axis.rows);
    }
    if (len > axis.max_seqlen) {
      return invalid("{}: {}[{}]−{}[{}]={} rows exceed {}={}; raise that bound, or set it to 0",
                     x.op, x.cu_name, b + 1, x.cu_name, b, len, x.max_name, axis.max_seqlen);
    }
  }
  return {};
}

Status check_seqused(const Cuts& x, const SeqAxis& axis, int64_t batch) {
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t capacity = axis.varlen ? int64_t{x.cu[b + 1]} - x.cu[b] : axis.rows;
    if (x.used[b] < 0 || x.used[b] > capacity) {
      return invalid("{}: {}[{}]={}, need 0…{}, the rows of that sequence", x.op, x.used_name, b,
                     x.used[b], capacity);
    }
  }
  return {};
}

Status check_cuts(const Problem& p, const Buffers& buffers, bool query) {
  const SeqAxis& axis = query ? p.q : p.kv;
  const TensorId cu = query ? kCuSeqlensQ : kCuSeqlensKv;
  const TensorId used = query ? kSequsedQ : kSequsedKv;
  const Cuts x{op_name(p.op),           tensor_name(cu),
               tensor_name(used),       query ? "max_seqlen_q" : "max_seqlen_kv",
               buffers.in<int32_t>(cu), buffers.in<int32_t>(used)};
  if (axis.varlen) FA3_RETURN_IF_ERROR(check_cu_seqlens(x, axis, p.batch));
  if (axis.seqused) FA3_RETURN_IF_ERROR(check_seqused(x, axis, p.batch));
  return {};
}

}  // namespace

Status check_lengths(const Problem& problem, const Buffers& buffers) {
  FA3_RETURN_IF_ERROR(check_cuts(problem, buffers, true));
  return check_cuts(problem, buffers, false);
}

}  // namespace fa3
