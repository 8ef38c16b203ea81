// SPDX-License-Identifier: BSD-3-Clause
// gemms.h — the backward's GEMMs: their operands in shared memory, and S, dP and dQ issued.
#pragma once

#include "device/hopper/column_term.h"
#include "device/hopper/gemm.h"
#include "device/hopper/operand.h"
#include "device/sm90/bwd/queries.h"

namespace fa3::sm90 {

template <BwdConfig kCfg, class SmemOf = BwdSmem<kCfg>>
struct BwdGemms : BwdQueries<kCfg, SmemOf> {
  using Base = BwdQueries<kCfg, SmemOf>;
  using Base::Base;
  using Base::kType, Base::kK, Base::kV, Base::kQ, Base::kDout, Base::kDs, Base::kDqColumns;
  using Base::smem, Base::base, Base::wg;
  using typename Base::Scores, typename Base::QRing, typename Base::DoutRing, typename Base::DsRing,
      typename Base::DqAcc;

  // Of a tile in shared memory; `skip`: bytes from its first row on.
  template <TileLayout kTile, class Member, class Cursor>
  FA3_DEV KMajorOperand<kTile> rows(const Member& member, const Cursor& ring, u32 skip = 0) const {
    return KMajorOperand<kTile>::at(at(member) + skip +
                                    ring.stage * static_cast<u32>(kTile.bytes()));
  }
  template <TileLayout kTile, class Member, class Cursor>
  FA3_DEV MnMajorOperand<kTile> columns(const Member& member, const Cursor& ring,
                                        u32 skip = 0) const {
    return MnMajorOperand<kTile>::at(at(member) + skip +
                                     ring.stage * static_cast<u32>(kTile.bytes()));
  }
  template <class Member>
  FA3_DEV u32 at(const Member& member) const {
    return base + static_cast<u32>(reinterpret_cast<const u8*>(&member) -
                                   reinterpret_cast<const u8*>(&smem));
  }
  // To the rows of this consumer's keys.
  template <TileLayout kTile>
  FA3_DEV u32 own_bytes() const {
    return kCfg.own_keys() * wg * static_cast<u32>(kTile.panel_width());
  }

  // S − LSE / scale, so that P is of its exponential; with a softcap S.
  FA3_DEV void issue_s(const QRing& ring, const ptx::AFrag& ones, Scores& s) const {
    gemm_ss<kType, kCfg.head_dim_qk / 16>(s, rows<kK>(smem.k, Ring<1>{}, own_bytes<kK>()),
                                          rows<kQ>(smem.q, ring), kOverwrite,
                                          [&] { add_lse(ring.stage, ones, s); });
  }
  FA3_DEV void add_lse(u32 stage, const ptx::AFrag& ones, Scores& s) const {
    if constexpr (!kCfg.softcap) add_terms(s, ones, term_at(smem.stats[0], stage, kCfg.delta_at()));
  }
  // dP − δ.
  FA3_DEV void issue_dp(const DoutRing& ring, const ptx::AFrag& ones, Scores& dp) const {
    gemm_ss<kType, kCfg.head_dim_v / 16>(  // sim:spare(fenced)
        dp, rows<kV>(smem.v, Ring<1>{}, own_bytes<kV>()), rows<kDout>(smem.dout, ring), kOverwrite,
        [&] { add_terms(dp, ones, term_at(smem.delta[0], ring.stage, kCfg.term_floats())); });
  }
  template <class Member>
  FA3_DEV u32 term_at(const Member& first, u32 stage, int floats) const {
    return at(first) + stage * 4 * static_cast<u32>(floats);
  }
  // All keys' dS is there.
  FA3_DEV void issue_dq(const DsRing& ring, DqAcc& dq) {
    const auto k = columns<kK>(smem.k, Ring<1>{}, to_column<kK>(kDqColumns * dq_part()));
    if constexpr (kCfg.ds_turned()) {
      constexpr u32 kOwn = kCfg.dq_by_rows() ? static_cast<u32>(kWgRows * kDs.panel_width()) : 0;
      gemm_ss<kType, kCfg.tile_kv() / 16>(dq, rows<kDs>(smem.ds, ring, kOwn * wg), k, kOverwrite);
    } else {
      gemm_ss<kType, kCfg.tile_kv() / 16>(dq, columns<kDs>(smem.ds, ring), k, kOverwrite);
    }
  }
  // To a column of the first row.
  template <TileLayout kTile>
  FA3_DEV static u32 to_column(u32 column) {
    constexpr u32 kPanel = static_cast<u32>(kTile.panel_columns());
    return column / kPanel * static_cast<u32>(kTile.panel_bytes()) + column % kPanel * 2;
  }
  // Which of dQ's columns.
  FA3_DEV u32 dq_part() const {
    if constexpr (kCfg.dq_by_rows()) return 0;
    return kCfg.split() ? BwdCta<kCfg>::rank() : wg;
  }
};

}  // namespace fa3::sm90
