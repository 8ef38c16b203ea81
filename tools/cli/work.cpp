// SPDX-License-Identifier: BSD-3-Clause
// work.cpp — counts the work of a call.
#include "work.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "tools/verify/naive_input.h"

namespace fa3::cli {
namespace {

// First row and number of rows of sequence b on one axis.
std::pair<int64_t, int64_t> rows(const fa3_tensor& t, const fa3_tensor& cu_seqlens,
                                 const fa3_tensor& seqused, int64_t b) {
  const auto* cu = static_cast<const int32_t*>(cu_seqlens.data);
  const auto* used = static_cast<const int32_t*>(seqused.data);
  const bool is_varlen = t.rank == 3;
  const int64_t begin = is_varlen ? cu[b] : 0;
  const int64_t all = is_varlen ? cu[b + 1] - cu[b] : t.shape[1];
  return {begin, seqused.rank > 0 ? used[b] : all};
}

// Ids of a sequence's rows, contiguous in memory.
const int32_t* ids(const fa3_tensor& t, int64_t b, int64_t begin) {
  if (t.rank == 0) return nullptr;
  return static_cast<const int32_t*>(t.data) + (t.rank == 2 ? b * t.stride[0] : 0) + begin;
}

// How many pairs of query and key of a sequence are visible.
class PairCounter {
 public:
  explicit PairCounter(const Sequence& s) : sequence_(s) {
    for (int64_t j = 0; s.kv_ids != nullptr && j < s.kv_len; ++j)
      keys_.emplace_back(s.kv_ids[j], j);
    std::sort(keys_.begin(), keys_.end());
  }
  // Keys of query `row` among `shown`.
  int64_t count(int64_t row, KeyRange shown) const {
    if (sequence_.kv_ids == nullptr) return shown.last - shown.first;
    const auto before = [&](int64_t key) {
      return std::lower_bound(keys_.begin(), keys_.end(), std::pair(sequence_.q_ids[row], key));
    };
    return before(shown.last) - before(shown.first);
  }

 private:
  const Sequence& sequence_;
  std::vector<std::pair<int32_t, int64_t>> keys_;  // (id, key), sorted
};

}  // namespace

int64_t sequence_count(const fa3_forward_args& a) {
  if (a.q.rank == 4) return a.q.shape[0];
  return a.cu_seqlens_q.shape[0] - 1;
}

Sequence sequence(const fa3_forward_args& a, int64_t b) {
  Sequence s;
  std::tie(s.q_begin, s.q_len) = rows(a.q, a.cu_seqlens_q, a.seqused_q, b);
  if (a.kv_begin.rank > 0)
    s.kv_begin = static_cast<const int32_t*>(a.kv_begin.data)[b],
    s.kv_len = static_cast<const int32_t*>(a.seqused_kv.data)[b];
  else
    std::tie(s.kv_begin, s.kv_len) = rows(a.k, a.cu_seqlens_kv, a.seqused_kv, b);
  s.q_ids = ids(a.sequence_ids_q, b, s.q_begin);
  s.kv_ids = ids(a.sequence_ids_kv, b, s.kv_begin);
  return s;
}

KeyRange visible_keys(const fa3_forward_args& a, const Sequence& s, int64_t row) {
  const bool top_left = a.mask_alignment == FA3_ALIGN_TOP_LEFT;
  const int64_t position = top_left ? row : row + s.kv_len - s.q_len;
  KeyRange keys{0, s.kv_len};
  if (a.mask == FA3_MASK_CAUSAL) keys.last = position + 1;
  if (a.mask == FA3_MASK_WINDOW && a.left >= 0)
    keys.first = position - std::min(a.left, s.q_len + s.kv_len);
  if (a.mask == FA3_MASK_WINDOW && a.right >= 0)
    keys.last = position + 1 + std::min(a.right, s.kv_len + s.q_len);
  if (a.attention_chunk > 0) {
    const int64_t chunk = std::min(a.attention_chunk, s.q_len + s.kv_len);
    const int64_t own = position < 0 ? -chunk : position / chunk * chunk;
    keys.first = std::max(keys.first, own);
    keys.last = std::min(keys.last, own + chunk);
  }
  keys.first = std::clamp<int64_t>(keys.first, 0, s.kv_len);
  keys.last = std::clamp<int64_t>(keys.last, keys.first, s.kv_len);
  return keys;
}

namespace {

// Pairs of a sequence that attn_mask leaves, summed over the query heads.
double masked_pairs(const fa3_forward_args& a, const Sequence& s, int64_t b) {
  const int64_t heads = a.q.shape[a.q.rank - 2];
  const int64_t planes = a.attn_mask.shape[1] == 1 ? 1 : heads;  // of the mask
  int64_t pairs = 0;
  for (int64_t h = 0; h < planes; ++h) {
    for (int64_t i = 0; i < s.q_len; ++i) {
      const KeyRange keys = visible_keys(a, s, i);
      for (int64_t j = keys.first; j < keys.last; ++j) {
        if (s.kv_ids != nullptr && s.kv_ids[j] != s.q_ids[i]) continue;
        pairs += std::isinf(verify::mask_value(a.attn_mask, b, h, i, j)) ? 0 : 1;
      }
    }
  }
  return static_cast<double>(pairs) * static_cast<double>(heads / std::max<int64_t>(planes, 1));
}

// Whether all sequences have the same lengths: then there may be billions of them.
bool same_lengths(const fa3_forward_args& a) {
  return a.q.rank == 4 && a.k.rank == 4 && a.seqused_q.rank == 0 && a.seqused_kv.rank == 0;
}

}  // namespace

double forward_flops(const fa3_forward_args& a) {
  const int64_t batch = sequence_count(a);
  const bool alike = same_lengths(a) && a.sequence_ids_q.rank == 0 && a.attn_mask.rank == 0;
  const int64_t counted = alike ? std::min<int64_t>(batch, 1) : batch;
  const auto heads_q = static_cast<double>(a.q.shape[a.q.rank - 2]);
  double pairs = 0;
  for (int64_t b = 0; b < counted; ++b) {
    const Sequence s = sequence(a, b);
    if (a.attn_mask.rank != 0) {
      pairs += masked_pairs(a, s, b) / std::max(heads_q, 1.0);
      continue;
    }
    const PairCounter counter(s);
    for (int64_t row = 0; row < s.q_len; ++row)
      pairs += static_cast<double>(counter.count(row, visible_keys(a, s, row)));
  }
  if (alike) pairs *= static_cast<double>(batch);
  const auto dims = static_cast<double>(a.q.shape[a.q.rank - 1] + a.v.shape[a.v.rank - 1]);
  return 2 * pairs * heads_q * dims;
}

double kv_bytes(const fa3_forward_args& a) {
  const int64_t batch = sequence_count(a);
  const int64_t counted = same_lengths(a) ? std::min<int64_t>(batch, 1) : batch;
  double rows = 0;
  for (int64_t b = 0; b < counted; ++b) {
    const Sequence s = sequence(a, b);
    if (s.q_len == 0) continue;
    rows += static_cast<double>(visible_keys(a, s, s.q_len - 1).last - visible_keys(a, s, 0).first);
  }
  if (counted < batch) rows *= static_cast<double>(batch);
  const auto row_bytes = [](const fa3_tensor& t) {
    return t.shape[t.rank - 2] * t.shape[t.rank - 1] * verify::element_bytes(t.dtype);
  };
  return rows * static_cast<double>(row_bytes(a.k) + row_bytes(a.v));
}

}  // namespace fa3::cli
