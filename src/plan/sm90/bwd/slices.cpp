// SPDX-License-Identifier: BSD-3-Clause
// slices.cpp — the slices of the workspace that the backward's passes share: sizes, who writes and
// who reads.
#include "plan/sm90/slices.h"

#include "plan/sm90/bwd/plan.h"

namespace fa3::sm90 {

size_t BwdPlan::stats_bytes() const {
  return sizeof(float) * static_cast<size_t>(tiles * config.row_floats());
}
size_t BwdPlan::sums_bytes() const {
  return sums_dq ? sizeof(float) * static_cast<size_t>(tiles * config.dq_sums()) : 0;
}
size_t BwdPlan::flags_bytes() const {
  return sizeof(u32) * static_cast<size_t>(tiles * config.dq_flags());
}
size_t BwdPlan::bounds_bytes() const { return 16 * static_cast<size_t>(bounds); }
// In whole 16 bytes, as what follows needs.
size_t BwdPlan::zero_counts_bytes() const {
  return zero_ahead > 0 ? sizeof(u32) * static_cast<size_t>(round_up(tiles + heads, 4)) : 0;
}
size_t BwdPlan::coarse_rows_bytes() const {
  const int64_t floats = 2 * tiles * config.tile_q + round_up(tiles, 4);
  return config.adds_mask() ? sizeof(float) * static_cast<size_t>(floats) : 0;
}

std::vector<Slice> writes(const BwdPlan& plan) {
  const Slice sums{kDqSumsSlice, plan.sums_bytes()}, flags{kDqFlagsSlice, plan.flags_bytes()},
      counts{kZeroCountsSlice, plan.zero_counts_bytes()};
  if (plan.pass == BwdPass::kBound) return {{kBoundsSlice, plan.bounds_bytes()}};
  if (plan.pass == BwdPass::kDelta)
    return {{kStatsSlice, plan.stats_bytes()},
            sums,
            flags,
            counts,
            {kCoarseRowsSlice, plan.coarse_rows_bytes()}};
  if (plan.pass == BwdPass::kMain && plan.visits) return {sums, flags, counts};
  return {};
}

std::vector<const char*> reads(const BwdPlan& plan) {
  const BwdConfig& c = plan.config;
  const bool delta = plan.pass == BwdPass::kDelta, gradient = plan.pass == BwdPass::kMaskGradient;
  const bool main = plan.pass == BwdPass::kMain || gradient;
  const bool dq = plan.pass == BwdPass::kDq && plan.visits;
  const bool sinks = plan.pass == BwdPass::kSinks && plan.visits;
  std::vector<const char*> names;
  const auto add = [&](bool reads, const char* name) {
    if (reads) names.push_back(name);
  };
  add(delta && c.deterministic, kBoundsSlice);
  add(dq || sinks || (main && plan.visits), kStatsSlice);
  add(dq || (gradient && plan.visits), kDqSumsSlice);
  add(dq || (gradient && plan.visits), kDqFlagsSlice);
  add(main && plan.visits, kCoarseRowsSlice);
  add((main || delta) && c.adds_mask(), kMaskImageSlice);
  add(main && c.has_mask() && !c.adds_mask(), kMaskBitsSlice);
  add(main && c.has_mask() && !c.adds_mask(), kMaskTilesSlice);
  return names;
}

}  // namespace fa3::sm90
