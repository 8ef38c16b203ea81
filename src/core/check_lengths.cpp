// SPDX-License-Identifier: BSD-3-Clause
// check_lengths.cpp — the rules of fa3.h for cu_seqlens, seqused and what finds keys in caches.
#include "core/check_lengths.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "core/check_apart.h"

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
    const int64_t capacity = x.cu != nullptr ? int64_t{x.cu[b + 1]} - x.cu[b] : axis.max_seqlen;
    if (x.used[b] < 0 || x.used[b] > capacity) {
      return invalid("{}: {}[{}]={}, need 0…{}, the rows of that sequence", x.op, x.used_name, b,
                     x.used[b], capacity);
    }
  }
  return {};
}

Status check_cuts(const Problem& p, const Buffers& buffers, Axis at) {
  const SeqAxis& axis = p.along(at);
  const TensorId cu = cu_seqlens_of(at), used = seqused_of(at);
  const char* const max_name = at == Axis::kQuery ? "max_seqlen_q"
                               : at == Axis::kKey ? "max_seqlen_kv"
                               : at == Axis::kNew ? "total_new"
                                                  : "max_seqlen";
  const Cuts x{op_name(p.op), tensor_name(cu),         tensor_name(used),
               max_name,      buffers.in<int32_t>(cu), buffers.in<int32_t>(used)};
  if (x.cu != nullptr) FA3_RETURN_IF_ERROR(check_cu_seqlens(x, axis, p.batch));
  if (axis.seqused) FA3_RETURN_IF_ERROR(check_seqused(x, axis, p.batch));
  return {};
}

Status check_begin(const Problem& p, const Sequence& keys, int64_t b) {
  if (keys.begin >= 0 && keys.begin + keys.len <= p.kv.rows) return {};
  return invalid(
      "forward: kv_begin[{}]={} with {} keys{}: those are not all among the {} rows that the "
      "sequence may have, need 0…{}",
      b, keys.begin, keys.len, p.appends() ? ", new ones included" : "", p.kv.rows,
      p.kv.rows - keys.len);
}

// The pages of the rows that count; what stands beside them in the table is never read.
Status check_pages(const Problem& p, const Buffers& x, const Sequence& keys, int64_t b) {
  const KvCache& cache = p.cache;
  const int32_t* const pages = x.in<int32_t>(kPageTable) + b * cache.max_pages;
  const int64_t last = (keys.begin + keys.len - 1) / cache.page_size;
  for (int64_t i = keys.begin / cache.page_size; i <= last; ++i) {
    if (pages[i] >= 0 && pages[i] < cache.entries) continue;
    return invalid(
        "forward: page_table[{}, {}]={} is needed by {} keys from row {} on in pages of {}, need "
        "0…{}, the pages of k and v",
        b, i, pages[i], keys.len, keys.begin, cache.page_size, cache.entries - 1);
  }
  return {};
}

// Of sequences that have keys: the others need no place.
Status check_cache(const Problem& p, const Buffers& x) {
  const KvCache& cache = p.cache;
  if (!cache.present()) return {};
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence keys = kv_sequence_after(p, x, b);
    if (keys.len == 0) continue;
    if (cache.begins) FA3_RETURN_IF_ERROR(check_begin(p, keys, b));
    if (cache.paged()) FA3_RETURN_IF_ERROR(check_pages(p, x, keys, b));
    if (!cache.slots) continue;
    const int32_t slot = x.in<int32_t>(kKvBatchIdx)[b];
    if (slot >= 0 && slot < cache.entries) continue;
    return invalid("forward: kv_batch_idx[{}]={}, need 0…{}, the slots of k and v", b, slot,
                   cache.entries - 1);
  }
  return {};
}

// Every row that counts has an angle.
Status check_positions(const Problem& p, const Buffers& x) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t first = first_position(p, x, b), len = most_positions(p, x, b);
    if (len == 0) continue;
    if (first >= 0 && first + len <= p.rotation.positions) continue;
    return invalid(
        "{}: sequence {} has {} rows from position {} on, but rotary_cos holds positions 0…{}; "
        "need a row there for each",
        op_name(p.op), b, len, first, p.rotation.positions - 1);
  }
  return {};
}

// The rows of k and v that new keys of a sequence become: of an entry, or of packed tensors.
struct Written {
  int64_t entry, begin, end, b;
};

constexpr int64_t kAllRows = -1;  // as an entry

std::string what_of(int64_t entry) {
  return entry == kAllRows ? "all rows" : fmt::format("entry {}", entry);
}

// No row is written for two sequences.
Status check_written(std::vector<Written> all) {
  std::ranges::sort(all, [](const Written& x, const Written& y) {
    return x.entry != y.entry ? x.entry < y.entry : x.begin < y.begin;
  });
  for (size_t i = 1; i < all.size(); ++i) {
    const Written &x = all[i - 1], &y = all[i];
    if (x.entry != y.entry || x.end <= y.begin) continue;
    return invalid(
        "forward: sequences {} and {} both append to row {} of {} of k and v; need rows of their "
        "own",
        std::min(x.b, y.b), std::max(x.b, y.b), y.begin, what_of(y.entry));
  }
  return {};
}

// New keys have room, and rows of their own; check_cache() finds whether rows exist.
Status check_append(const Problem& p, const Buffers& x) {
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t before = kv_sequence(p, x, b).len, all = kv_sequence_after(p, x, b).len;
    const int64_t queries = q_sequence(p, x, b).len;
    if (p.has_tree() && queries != all - before)
      return invalid(
          "forward: tree_mask: sequence {} has {} queries and {} new keys; need a new key for each "
          "query",
          b, queries, all - before);
    if (all <= p.kv.max_seqlen) continue;
    return invalid(
        "forward: sequence {} has seqused_kv={} keys and {} new ones, need at most {} together, "
        "the rows that it may have in k and v",
        b, before, all - before, p.kv.max_seqlen);
  }
  return p.rotation.rotary_dim > 0 ? check_positions(p, x) : Status();
}

Status check_written_rows(const Problem& p, const Buffers& x) {
  const bool packed = p.kv.varlen;
  if (!p.cache.paged() && !p.cache.slots && !packed) return {};  // each entry is one sequence's
  std::vector<Written> written;
  for (int64_t b = 0; b < p.batch; ++b) {
    const Sequence before = kv_sequence(p, x, b), after = kv_sequence_after(p, x, b);
    const int64_t end = after.begin + after.len;
    for (int64_t row = before.begin + before.len; row < end;) {
      const KeyPlace at = key_place(p, x, b, row);
      const int64_t last = p.cache.paged() ? std::min(end, row - at.row + p.cache.page_size) : end;
      written.push_back({packed ? kAllRows : at.entry, at.row, at.row + last - row, b});
      row = last;
    }
  }
  return check_written(std::move(written));
}

}  // namespace

Status check_lengths(const Problem& problem, const Buffers& buffers) {
  if (problem.op == FA3_OP_QUANTIZE) {
    FA3_RETURN_IF_ERROR(check_cuts(problem, buffers, Axis::kToken));
    return problem.rotation.rotary_dim > 0 ? check_positions(problem, buffers) : Status();
  }
  FA3_RETURN_IF_ERROR(check_cuts(problem, buffers, Axis::kQuery));
  FA3_RETURN_IF_ERROR(check_cuts(problem, buffers, Axis::kKey));
  if (!problem.appends()) return check_cache(problem, buffers);
  FA3_RETURN_IF_ERROR(check_cuts(problem, buffers, Axis::kNew));
  FA3_RETURN_IF_ERROR(check_append(problem, buffers));
  FA3_RETURN_IF_ERROR(check_cache(problem, buffers));
  FA3_RETURN_IF_ERROR(check_written_rows(problem, buffers));
  return problem.cache.paged() ? check_apart(problem, buffers) : Status();
}

}  // namespace fa3
