// SPDX-License-Identifier: BSD-3-Clause
// tuning.cpp — the key of a problem.
#include "core/tuning.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/dtype.h"

namespace fa3 {
namespace {

int64_t nearest_power_of_two(double x) {
  return int64_t{1} << std::max<int64_t>(std::llround(std::log2(std::max(x, 1.0))), 0);
}

std::string length_text(const SeqAxis& axis, int64_t batch) {
  if (!axis.varlen) return fmt::format("{}{}", axis.rows, axis.seqused ? " used" : "");
  const double mean =
      static_cast<double>(axis.rows) / static_cast<double>(std::max<int64_t>(batch, 1));
  return fmt::format("~{}", nearest_power_of_two(mean));
}

std::string mask_text(const Problem& p) {
  std::string text = "full";
  if (p.mask == FA3_MASK_CAUSAL) text = "causal";
  if (p.mask == FA3_MASK_WINDOW) text = fmt::format("window {},{}", p.left, p.right);
  if (p.attention_chunk > 0) text += fmt::format(" chunk {}", p.attention_chunk);
  return text;
}

}  // namespace

const std::string* Tuning::row_of(const Problem& problem) const {
  const auto found = rows.find(key_of(problem));
  return found == rows.end() ? nullptr : &found->second;
}

std::string key_of(const Problem& p) {
  const bool varlen = p.q.varlen || p.kv.varlen;
  const std::string batch =
      varlen ? fmt::format("~{}", nearest_power_of_two(static_cast<double>(p.batch)))
             : fmt::format("{}", p.batch);
  return fmt::format("{} {} batch {} heads {}/{} head_dim {}/{} seqlen {}/{} {}{}{}{}{}{}",
                     op_name(p.op), dtype_name(p.layout[kQ].dtype), batch, p.heads_q, p.heads_kv,
                     p.head_dim_qk, p.head_dim_v, length_text(p.q, p.batch),
                     length_text(p.kv, p.batch), mask_text(p),
                     p.deterministic ? " deterministic" : "", p.softcap > 0 ? " softcap" : "",
                     p.has_alibi() ? " alibi" : "", p.has_sequence_ids() ? " sequence_ids" : "",
                     p.has_mask() ? " attn_mask" : "");
}

}  // namespace fa3
