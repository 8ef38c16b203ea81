// SPDX-License-Identifier: BSD-3-Clause
// mask.cpp — mask, window, chunk, tree and alignment, and the tensors of attn_mask.
#include "api/mask.h"

#include <algorithm>
#include <utility>

#include "core/dtype.h"

namespace fa3 {
namespace {

// A window at least this wide sees everything: positions differ by less than 2^32. Such a bound
// becomes −1, so that no later sum of it can overflow.
constexpr int64_t kUnboundedWindow = int64_t{1} << 32;

Status read_window(Problem& p) {
  const char* const op = op_name(p.op);
  for (const auto& [name, field] : {std::pair("left", &p.left), std::pair("right", &p.right)}) {
    const int64_t given = *field;
    if (p.mask != FA3_MASK_WINDOW && given != 0) {
      return invalid(
          "{}: {}={} contradicts mask={}; need 0 there; set mask to FA3_MASK_WINDOW for a window",
          op, name, given, p.mask == FA3_MASK_FULL ? "FA3_MASK_FULL" : "FA3_MASK_CAUSAL");
    }
    if (given < -1) {
      return invalid("{}: {}={}, need ≥ 0, or -1 for all keys on that side", op, name, given);
    }
    if (given >= kUnboundedWindow) *field = -1;
  }
  return {};
}

Status read_chunk(Problem& p) {
  int64_t& chunk = p.attention_chunk;
  if (chunk < 0)
    return invalid("{}: attention_chunk={}, need ≥ 1, or 0 for none", op_name(p.op), chunk);
  chunk = std::min(chunk, kUnboundedWindow);
  return {};
}

// Beside what says the same, or says it of other keys.
Status check_tree(const Args& args, const Problem& p) {
  const auto given = [&](TensorId id) {
    return role_of(args.op, id) != Role::kNone && args.tensor[id].rank != 0;
  };
  if (!given(kTreeMask)) return {};
  if (p.has_positions())
    return invalid(
        "forward: tree_mask beside {}; need mask=FA3_MASK_FULL and attention_chunk=0: a tree shows "
        "all keys before the new ones, and of these those of its bits",
        p.attention_chunk > 0       ? fmt::format("attention_chunk={}", p.attention_chunk)
        : p.mask == FA3_MASK_CAUSAL ? "mask=FA3_MASK_CAUSAL"
                                    : "mask=FA3_MASK_WINDOW");
  for (const TensorId other : {kAttnMask, kSequenceIdsQ, kRotaryCos})
    if (given(other))
      return invalid("forward: tree_mask beside {}; need one of them: {}", tensor_name(other),
                     other == kRotaryCos ? "tokens of a tree have positions of their own; rotate q "
                                           "and k_new before the call"
                                         : "attn_mask can say both");
  if (p.q.max_seqlen > kMostInTree)
    return invalid(
        "forward: tree_mask with {}={}, need at most {} new tokens of a sequence; make the tree "
        "smaller, or use attn_mask",
        p.q.varlen ? "max_seqlen_q" : "seqlen_q", p.q.max_seqlen, kMostInTree);
  if (given(kKNew) && !p.q.varlen && !p.fresh.varlen && p.q.rows != p.fresh.rows)
    return invalid(
        "forward: tree_mask with seqlen_q={} and seqlen_new={}; need a new key for each query",
        p.q.rows, p.fresh.rows);
  return {};
}

Status read_alignment(const Args& args, Problem& p) {
  const char* const op = op_name(args.op);
  if (args.mask_alignment != FA3_ALIGN_BOTTOM_RIGHT && args.mask_alignment != FA3_ALIGN_TOP_LEFT) {
    return invalid(
        "{}: mask_alignment={} is unknown; need FA3_ALIGN_BOTTOM_RIGHT (0) or FA3_ALIGN_TOP_LEFT "
        "(1)",
        op, args.mask_alignment);
  }
  // Off where it changes nothing: every backend then takes the problem.
  const bool equal_lengths = !has_lengths(p) && p.q.rows == p.kv.rows;
  const bool has_positions = p.has_positions() || args.tensor[kAlibiSlopes].rank != 0;
  p.top_left = args.mask_alignment == FA3_ALIGN_TOP_LEFT && has_positions && !equal_lengths;
  return {};
}

}  // namespace

Status check_mask_tensors(const Args& args) {
  if (args.op == FA3_OP_QUANTIZE) return {};
  const fa3_tensor &mask = args.tensor[kAttnMask], &gradient = args.tensor[kDattnMask];
  const char* const op = op_name(args.op);
  if (mask.rank != 0 && args.tensor[kCuSeqlensQ].rank != 0) {
    return invalid(
        "{}: attn_mask beside cu_seqlens_q: rows of a mask are those of dense queries; pad q, with "
        "seqused_q, or say the same by sequence_ids",
        op);
  }
  if (gradient.rank == 0) return {};
  if (mask.rank == 0) {
    return invalid("{}: dattn_mask is given, but attn_mask is absent; need it, or leave both out",
                   op);
  }
  if (mask.dtype == FA3_BOOL) {
    return invalid("{}: dattn_mask beside attn_mask of bool, which has no gradient; leave it out",
                   op);
  }
  return {};
}

Status read_mask(const Args& args, Problem& p) {
  if (args.mask != FA3_MASK_FULL && args.mask != FA3_MASK_CAUSAL && args.mask != FA3_MASK_WINDOW) {
    return invalid(
        "{}: mask={} is unknown; need FA3_MASK_FULL (0), FA3_MASK_CAUSAL (1) or FA3_MASK_WINDOW "
        "(2)",
        op_name(args.op), args.mask);
  }
  p.mask = fa3_mask(args.mask);
  FA3_RETURN_IF_ERROR(read_window(p));
  FA3_RETURN_IF_ERROR(read_chunk(p));
  FA3_RETURN_IF_ERROR(check_tree(args, p));
  FA3_RETURN_IF_ERROR(read_alignment(args, p));
  const fa3_tensor& gradient = args.tensor[kDattnMask];
  if (gradient.rank != 0)
    p.mask_grad = {gradient.shape[0], gradient.shape[1], gradient.shape[2], gradient.shape[3]};
  return {};
}

}  // namespace fa3
