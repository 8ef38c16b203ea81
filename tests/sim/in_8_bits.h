// SPDX-License-Identifier: BSD-3-Clause
// in_8_bits.h — a problem of 16 bits with the types of a row of the table.
#pragma once

#include "device/sm90/fwd/config.h"
#include "tools/verify/problem.h"

namespace fa3::sm90 {

// For a row of 8 bits; which, and which scales, depends on `kind`. O is F16 where the problem was
// of F16, but for what the simulator does not have.
inline verify::Config in_8_bits(verify::Config c, const FwdConfig& row, size_t kind) {
  using Of = verify::Scales::Of;
  if (!row.types.scaled()) return c;
  const bool plain = c.softcap == 0 && c.softmax_scale >= 0;
  c.out_dtype = c.dtype == FA3_F16 && plain ? FA3_F16 : FA3_BF16;
  if (c.layout == verify::Layout::kInterleaved && (!row.types.v8() || c.seqlen_q > 1000)) {
    c.layout = verify::Layout::kSeqFirst;
    c.seqlen_kv = 2 * row.tile.kv + 9;  // as many as queries would take long
  }
  const bool integers =
      !row.types.v8() || (kind % 3 == 1 && c.layout != verify::Layout::kInterleaved);
  c.dtype = integers ? FA3_I8 : FA3_F8_E4M3;
  if (!row.types.v8()) c.v_dtype = c.out_dtype;
  c.head_dim_qk -= c.head_dim_qk % 16, c.head_dim_v -= c.head_dim_v % 16;
  constexpr Of kOfQ[] = {Of::kTokens, Of::kGroups, Of::kBlocks, Of::kHeads};
  c.q_scale = {kOfQ[kind % 4], kind % 4 == 2 ? 48 : 0};
  if (kind % 5 == 0) c.k_scale = {Of::kTensor};
  c.v_offset = row.types.v8() && kind % 3 == 0;
  // Its kernel has CTAs for each sequence, which of many take a minute.
  c.k_offset = (kind % 2 == 1 || c.softcap > 0) && c.varlen_q.size() <= 8;
  return c;
}

}  // namespace fa3::sm90
