// SPDX-License-Identifier: BSD-3-Clause
// append.cpp — k_new, v_new and rotary tables of a forward: what they need, and what excludes them.
#include "api/append.h"

#include "core/dtype.h"

namespace fa3 {
namespace {

bool has(const Args& args, TensorId id) {
  return role_of(args.op, id) != Role::kNone && args.tensor[id].rank != 0;
}

}  // namespace

bool writes(const Args& args, TensorId id) {
  return is_output(role_of(args.op, id)) || ((id == kK || id == kV) && has(args, kKNew));
}

Status check_append(const Args& args) {
  if (args.op != FA3_OP_FORWARD) return {};
  if (args.rotary_layout != 0 && !has(args, kRotaryCos))
    return invalid("forward: rotary_layout={} without rotary_cos, need 0", args.rotary_layout);
  if (!has(args, kKNew)) {
    for (const TensorId id : {kCuSeqlensNew, kRotaryCos, kRotaryPosition})
      if (has(args, id))
        return invalid(
            "forward: {} is given, but k_new is absent; need the keys that are appended, or leave "
            "it out: without them nothing is rotated",
            tensor_name(id));
    return {};
  }
  if (!has(args, kSequsedKv))
    return invalid(
        "forward: k_new is given, but seqused_kv is absent; need the number of keys that are there "
        "already");
  if (has(args, kCuSeqlensKv))
    return invalid(
        "forward: k_new beside cu_seqlens_kv, whose sequences have no room behind them; need dense "
        "k and v, pages or slots");
  const bool of_8_bits = is_8_bit(args.tensor[kQ].dtype) || is_8_bit(args.tensor[kK].dtype);
  if (of_8_bits || args.precision != FA3_PRECISION_DEFAULT)
    return unsupported(
        "forward: k_new with {}: what is appended is not quantised; need q, k and v in f16, bf16 "
        "or f32, and precision 0",
        of_8_bits ? "k of 8 bits" : "a precision of 8 bits");
  return {};
}

Status check_room(const Problem& p) {
  if (!p.appends() || p.fresh.varlen || p.batch == 0 || p.fresh.rows <= p.kv.max_seqlen) return {};
  return invalid(
      "forward: k_new.shape[1]={} new keys, need at most {}, the rows that a sequence may have in "
      "k and v; make these larger, or raise max_seqlen_kv",
      p.fresh.rows, p.kv.max_seqlen);
}

}  // namespace fa3
