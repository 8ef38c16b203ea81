// SPDX-License-Identifier: BSD-3-Clause
// rows.cpp — the first row that fits, made to fit closely.
#include "plan/sm90/fwd/rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/names.h"

namespace fa3::sm90 {
namespace {

enum class Fit {
  kYes,
  kOperands,
  kSums,
  kVImage,
  kHeadDimQk,
  kHeadDimV,
  kMask,
  kPlain,
  kSeqlenQ,
  kConsumers
};

// The only place with the rule: rejected_rows() reports what it returned.
Fit fit_of(const FwdRow& row, const RowNeed& need) {
  if (!row.takes(need.operands)) return Fit::kOperands;
  const bool longer = row.sums() > need.sums && need.sums != Sums::kShort;  // right, and as good
  if (row.sums() != need.sums && !longer) return Fit::kSums;
  const bool other_tiles = need.image_keys != 0 && need.image_keys != row.config.tile.kv;
  if (need.v_image && (row.config.transposes() || other_tiles)) return Fit::kVImage;
  if (need.head_dim_qk > row.config.tile.head_dim_qk) return Fit::kHeadDimQk;
  if (need.head_dim_v > row.config.tile.head_dim_v) return Fit::kHeadDimV;
  if (!takes(row, need.mask, need.operands)) return Fit::kMask;
  if (row.plain_only && !need.plain) return Fit::kPlain;
  if (row.max_seqlen_q != 0 && need.seqlen_q > row.max_seqlen_q) return Fit::kSeqlenQ;
  if (row.config.tile.consumer_wgs == 3 && !need.three_consumers) return Fit::kConsumers;
  return Fit::kYes;
}

const char* text_of_masks(unsigned masks) {
  if (masks == kFull) return "no mask";
  if (masks == kCausal) return "a causal mask";
  if (masks == kWindow) return "a window";
  return "a mask";
}

const char* text_of_sums(Sums sums) {
  if (sums == Sums::kShort) return "P·V added up by the tensor cores";
  return sums == Sums::kLong ? "P·V added up in FP32"
                             : "P·V added up in FP32 tile by tile, for scales of blocks";
}

std::string text_of(Fit fit, const FwdRow& row, const RowNeed& need) {
  switch (fit) {
    case Fit::kOperands:
      return fmt::format("{}, here {}",
                         !row.config.types.scaled() ? "16-bit q, k and v"
                         : row.config.types.v8()    ? "8-bit q, k and v"
                                                    : "8-bit q and k, 16-bit v",
                         word(need.operands));
    case Fit::kSums:
      return fmt::format("{}, here {}", text_of_sums(row.sums()), text_of_sums(need.sums));
    case Fit::kVImage:
      return row.config.transposes() ? "transposes v itself, here v_image is given"
                                     : fmt::format("v_image in tiles of {} keys, here of {}",
                                                   row.config.tile.kv, need.image_keys);
    case Fit::kHeadDimQk:
      return fmt::format("head_dim_qk up to {}, here {}", row.config.tile.head_dim_qk,
                         need.head_dim_qk);
    case Fit::kHeadDimV:
      return fmt::format("head_dim_v up to {}, here {}", row.config.tile.head_dim_v,
                         need.head_dim_v);
    case Fit::kMask:
      return fmt::format("{}, here {}", text_of_masks(row.masks), word(need.mask));
    case Fit::kPlain:
      return "a scale per head, o of 16 bits and no softcap, negative softmax_scale, ALiBi or "
             "sequence ids";
    case Fit::kSeqlenQ:
      return fmt::format("up to {} queries per sequence (varlen: twice the mean), here {}",
                         row.max_seqlen_q, need.seqlen_q);
    case Fit::kConsumers:
      return "three consumers: tiles of 192 queries fill the GPU worse, or functors take their "
             "registers";
    case Fit::kYes:
      break;
  }
  return "fits too, but stands behind the row that is used";
}

}  // namespace

const FwdRow* choose_row(const RowNeed& need) {
  const FwdRow* const row =
      std::find_if(std::begin(kFwdRows), std::end(kFwdRows),
                   [&](const FwdRow& r) { return fit_of(r, need) == Fit::kYes; });
  return row == std::end(kFwdRows) ? nullptr : row;
}

const FwdRow* row_named(std::string_view name) {
  const FwdRow* const row = std::find_if(std::begin(kFwdRows), std::end(kFwdRows),
                                         [&](const FwdRow& r) { return name == r.name; });
  return row == std::end(kFwdRows) ? nullptr : row;
}

std::string why_not(const FwdRow& row, const RowNeed& need, const FwdFunctors& functors) {
  RowNeed right = need;
  right.sums = std::max(need.sums, row.sums());  // which is right for shorter sums, too
  const Fit fit = fit_of(row, right);
  for (const Fit wrong : {Fit::kOperands, Fit::kSums, Fit::kVImage, Fit::kHeadDimQk, Fit::kHeadDimV,
                          Fit::kMask, Fit::kPlain})
    if (fit == wrong) return text_of(fit, row, need);
  if (row.config.tile.consumer_wgs == 3 && functors.any())
    return "three consumers: functors take their registers";
  const char* const illegal = why_illegal(
      fitted(config_of(row, {.mask = need.mask, .functors = functors, .operands = need.operands}),
             need.head_dim_qk, need.head_dim_v));
  return illegal == nullptr ? "" : illegal;
}

std::vector<RejectedRow> rejected_rows(const RowNeed& need, const FwdRow* used) {
  const FwdRow* const chosen = choose_row(need);
  std::vector<RejectedRow> rejected;
  for (const FwdRow& row : kFwdRows) {
    if (&row == used) continue;
    rejected.push_back({row.name, &row == chosen ? "the rule's choice; the tuning names another"
                                                 : text_of(fit_of(row, need), row, need)});
  }
  return rejected;
}

FwdConfig fitted(const FwdConfig& config, int64_t head_dim_qk, int64_t head_dim_v) {
  FwdConfig fit = config;
  fit.tile.head_dim_qk = static_cast<int>(round_up(head_dim_qk, config.columns_unit()));
  fit.tile.head_dim_v = static_cast<int>(round_up(head_dim_v, config.columns_unit()));
  fit.output.parts = std::min(fit.output.parts, fit.o_tile().panels());
  while (fit.accumulate.flush_columns > 0 &&
         fit.tile.head_dim_v % fit.accumulate.flush_columns != 0)
    fit.accumulate.flush_columns -= 16;
  if (fit.o_fits_q()) return fit;
  fit.output.in_q = false;
  if (why_illegal(fit) == nullptr) return fit;
  fit.output.in_q = config.output.in_q;
  fit.tile.head_dim_qk = fit.tile.head_dim_v;
  return fit;
}

}  // namespace fa3::sm90
