// SPDX-License-Identifier: BSD-3-Clause
// attention_map.cpp — computes the cells of the attention map.
#include "attention_map.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "error.h"
#include "interrupt.h"
#include "options.h"
#include "tools/verify/naive_input.h"
#include "tools/verify/tensor.h"
#include "work.h"

namespace fa3::cli {
namespace {

constexpr int64_t kMostCells = 1024;              // per side
constexpr int64_t kMostPairs = int64_t{1} << 30;  // of query and key; beyond, queries are sampled

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The scores of one query of the head against all keys that it sees.
class Scores {
 public:
  Scores(const fa3_forward_args& args, const Sequence& sequence, int64_t head, int64_t batch)
      : args_(args), sequence_(sequence), head_(head), batch_(batch), row_(sequence.kv_len) {
    const int64_t group = args.q.shape[args.q.rank - 2] / args.k.shape[args.k.rank - 2];
    const int64_t dim = args.k.shape[args.k.rank - 1];
    scale_ = args.softmax_scale != 0 ? args.softmax_scale : 1 / std::sqrt(static_cast<double>(dim));
    keys_.resize(static_cast<size_t>(dim * sequence.kv_len));
    const verify::Input in = verify::input_k(args);
    const std::vector<float> k =
        verify::gather(in, batch, {sequence.kv_begin, sequence.kv_len}, head / group);
    const std::vector<float> offset = verify::gather_offset(in, batch, head / group);
    for (int64_t j = 0; j < sequence.kv_len; ++j)
      for (int64_t c = 0; c < dim; ++c)
        keys_[c * sequence.kv_len + j] = k[j * dim + c] + (offset.empty() ? 0 : offset[c]);
    queries_ =
        verify::gather(verify::input_q(args), batch, {sequence.q_begin, sequence.q_len}, head);
  }

  // Probabilities of query i; those outside `keys` are not valid.
  const std::vector<float>& probabilities(int64_t i, KeyRange keys) {
    const int64_t dim = args_.q.shape[args_.q.rank - 1];
    std::fill(row_.begin() + keys.first, row_.begin() + keys.last, 0.0f);
    for (int64_t c = 0; c < dim; ++c) {
      const float x = queries_[i * dim + c];
      const float* k =
          keys_.data() + c * sequence_.kv_len;  // row c of Kᵀ: this loop is a vector one
      for (int64_t j = keys.first; j < keys.last; ++j) row_[j] += x * k[j];
    }
    const double lse = read_lse(i);
    const double cap = args_.softcap, slope = alibi_slope();
    const bool top_left = args_.mask_alignment == FA3_ALIGN_TOP_LEFT;
    const int64_t position = top_left ? i : i + sequence_.kv_len - sequence_.q_len;
    for (int64_t j = keys.first; j < keys.last; ++j) {
      double s = row_[j] * scale_;
      if (cap > 0) s = cap * std::tanh(s / cap);
      if (slope != 0) s -= slope * static_cast<double>(std::abs(position - j));
      if (args_.attn_mask.rank != 0) s += verify::mask_value(args_.attn_mask, batch_, head_, i, j);
      // A row whose scores are all −inf has LSE −inf and attends to nothing.
      row_[j] = lse == -std::numeric_limits<double>::infinity()
                    ? 0.0f
                    : static_cast<float>(std::exp(s - lse));
    }
    return row_;
  }

 private:
  double alibi_slope() const {
    const fa3_tensor& t = args_.alibi_slopes;
    if (t.rank == 0) return 0;
    return verify::get(t, t.rank == 2 ? verify::Index{batch_, head_} : verify::Index{head_});
  }
  double read_lse(int64_t i) const {
    const int64_t* stride = args_.lse.stride;
    const int64_t row = sequence_.q_begin + i;
    const int64_t offset = args_.lse.rank == 3
                               ? batch_ * stride[0] + head_ * stride[1] + row * stride[2]
                               : head_ * stride[0] + row * stride[1];
    return static_cast<const float*>(args_.lse.data)[offset];
  }

  const fa3_forward_args& args_;
  const Sequence sequence_;
  const int64_t head_, batch_;
  double scale_ = 1;
  std::vector<float> keys_;     // Kᵀ, head_dim × keys
  std::vector<float> queries_;  // queries × head_dim
  std::vector<float> row_;
};

bool hidden_by_mask(const fa3_forward_args& args, int64_t batch, int64_t head, int64_t i,
                    int64_t j) {
  return args.attn_mask.rank != 0 && verify::mask_value(args.attn_mask, batch, head, i, j) ==
                                         -std::numeric_limits<float>::infinity();
}

std::vector<std::string> legend(const HeatMap& m, int64_t sampled, const fa3_forward_args& args) {
  const bool ids = args.sequence_ids_q.rank != 0;
  std::vector<std::string> notes;
  if (m.queries_per_row == 1 && m.keys_per_column == 1) {
    notes.push_back("One cell is one query and one key.");
  } else {
    notes.push_back(fmt::format(
        "One cell is {} x {} (queries x keys): mean over the queries{}, sum over the keys.",
        m.queries_per_row, m.keys_per_column,
        sampled < m.queries_per_row ? fmt::format(" ({} sampled)", sampled) : ""));
  }
  const bool tensor = args.attn_mask.rank != 0;
  notes.push_back(tensor ? "Colour: probability, logarithmic. Grey: hidden by a mask."
                  : ids  ? "Colour: probability, logarithmic. Grey: hidden by mask or sequence ids."
                  : args.mask != FA3_MASK_FULL || args.attention_chunk > 0
                      ? "Colour: probability, logarithmic. Grey: hidden by the mask."
                      : "Colour: probability, logarithmic.");
  return notes;
}

Sequence checked_sequence(const fa3_forward_args& args, int64_t head, int64_t batch) {
  const int64_t heads = args.q.shape[args.q.rank - 2];
  if (head >= heads)
    fail(kBadInput, "--head: got {}, need 0...{}: q has {} heads", head, heads - 1, heads);
  const int64_t count = sequence_count(args);
  if (count == 0) fail(kBadInput, "--map: there is no sequence to draw; leave --map out");
  if (batch >= count)
    fail(kBadInput, "--batch: got {}, need less than {}, the number of sequences", batch, count);
  const Sequence s = sequence(args, batch);
  if (s.q_len == 0 || s.kv_len == 0)
    fail(kBadInput,
         "--map: sequence {} has {} queries and {} keys, need one of each; choose another --batch",
         batch, s.q_len, s.kv_len);
  return s;
}

}  // namespace

HeatMap attention_map(const fa3_forward_args& args, int64_t head, int64_t batch,
                      Progress& progress) {
  const Sequence s = checked_sequence(args, head, batch);
  HeatMap m;
  m.queries = s.q_len;
  m.keys = s.kv_len;
  m.queries_per_row = ceil_div(s.q_len, kMostCells);
  m.keys_per_column = ceil_div(s.kv_len, kMostCells);
  m.rows = static_cast<int>(ceil_div(s.q_len, m.queries_per_row));
  m.columns = static_cast<int>(ceil_div(s.kv_len, m.keys_per_column));
  const int64_t step = std::min(m.queries_per_row, ceil_div(s.q_len * s.kv_len, kMostPairs));

  m.title = fmt::format("Attention probabilities, head {} of {}, sequence {}, {}", head,
                        args.q.shape[args.q.rank - 2], batch,
                        mask_text({static_cast<fa3_mask>(args.mask), args.left, args.right}));
  m.notes = legend(m, ceil_div(m.queries_per_row, step), args);
  m.value.assign(static_cast<size_t>(m.rows) * m.columns, -1.0f);

  Scores scores(args, s, head, batch);
  progress.start("map");
  for (int r = 0; r < m.rows; ++r) {
    float* cells = m.value.data() + static_cast<size_t>(r) * m.columns;
    const int64_t first = r * m.queries_per_row;
    const int64_t last = std::min(first + m.queries_per_row, s.q_len);
    const auto count = static_cast<float>(ceil_div(last - first, step));
    for (int64_t i = first; i < last; i += step) {
      const KeyRange keys = visible_keys(args, s, i);
      const std::vector<float>& p = scores.probabilities(i, keys);
      for (int64_t j = keys.first; j < keys.last; ++j) {
        if (!same_id(s, i, j) || hidden_by_mask(args, batch, head, i, j)) continue;
        float& cell = cells[j / m.keys_per_column];
        cell = (cell < 0 ? 0 : cell) + p[j] / count;
      }
    }
    progress.report(r + 1, m.rows);
    stop_if_interrupted();
  }
  progress.finish();
  return m;
}

}  // namespace fa3::cli
