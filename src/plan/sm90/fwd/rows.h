// SPDX-License-Identifier: BSD-3-Clause
// rows.h — which row of fwd/configs.h a problem gets, why the others are rejected, and the
// configuration that the row yields.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/sm90/fwd/variants.h"

namespace fa3::sm90 {

// What a row is selected by.
struct RowNeed {
  int64_t head_dim_qk = 0, head_dim_v = 0;
  MaskKind mask = MaskKind::kFull;
  int64_t seqlen_q = 0;         // of the longest sequence; varlen: at most twice the mean
  bool three_consumers = true;  // no functors, and tiles of 192 queries pay
  Operands operands = Operands::k16;
  Sums sums = Sums::kShort;
  bool v_image = false;    // V comes transposed,
  int64_t image_keys = 0;  // in tiles of so many; 0: of any
  bool plain = true;       // see FwdRow::plain_only
};

const FwdRow* choose_row(const RowNeed& need);  // nullptr when none fits

// In place of a row's name: the decode kernel, which a tuning keeps by it.
inline constexpr const char* kDecodeRow = "decode";

const FwdRow* row_named(std::string_view name);  // nullptr when there is none

// Why a row that a tuning names for such a problem cannot run it; "" = it can. Unlike choose_row(),
// which knows where a row pays, it asks only where it is right.
std::string why_not(const FwdRow& row, const RowNeed& need, const FwdFunctors& functors);

// The rows of the table but `used`, in their order.
struct RejectedRow {
  const char* name;
  std::string why;
};
std::vector<RejectedRow> rejected_rows(const RowNeed& need, const FwdRow* used);

// The same with GEMMs no wider than the tensors need; Q and K no narrower than O where O leaves
// through Q's buffer.
FwdConfig fitted(const FwdConfig& config, int64_t head_dim_qk, int64_t head_dim_v);

}  // namespace fa3::sm90
