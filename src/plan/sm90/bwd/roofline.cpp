// SPDX-License-Identifier: BSD-3-Clause
// roofline.cpp — costs of a step, and the kernels' least times as sums of them.
#include "plan/sm90/bwd/roofline.h"

#include <algorithm>
#include <vector>

#include "core/dtype.h"
#include "device/sm90/bwd/rows.h"
#include "plan/sm90/makespan.h"
#include "plan/sm90/roofline.h"
#include "plan/sm90/tensor_limits.h"

namespace fa3::sm90 {
namespace {

// Beyond this many CTAs the last wave is too short a part to be worth simulating.
constexpr double kMostTiles = 1 << 20;

// Bytes of a tensor, each element once; of rows of queries or keys.
double bytes_of(const Problem& p, TensorId id) {
  const Layout& layout = p.layout[id];
  if (!layout.present()) return 0;
  const double rows = static_cast<double>(p.axis_of(id).rows * p.entries_of(id) * p.heads_of(id));
  return rows * static_cast<double>(p.columns_of(id)) *
         static_cast<double>(dtype_bytes(layout.dtype));
}
double bytes_of(const Problem& p, std::initializer_list<TensorId> ids) {
  double sum = 0;
  for (const TensorId id : ids) sum += bytes_of(p, id);
  return sum;
}

}  // namespace

double BwdStepCost::most() const { return std::max({mma, exponentials, shared_memory, additions}); }

const char* BwdStepCost::limiter() const {
  if (mma == most()) return "mma";
  if (additions == most()) return "additions";
  return shared_memory == most() ? "shared_memory" : "exponentials";
}

BwdStepCost bwd_step_cost(const BwdConfig& c, bool sums_dq) {
  const double qk = c.head_dim_qk, v = c.head_dim_v, q = c.tile_q, kv = c.tile_kv();
  BwdStepCost cost;
  const double terms = c.softcap ? 1 : 2;  // LSE and δ, steps of S and dP
  cost.mma = 2 * q * kv * (3 * qk + 2 * v + 16 * terms) / kMmaFlops;
  cost.exponentials = q * kv / kExponentials;
  const double dq_bytes = 4. * c.dq_sums() / c.cluster();  // that a CTA adds
  cost.additions = sums_dq ? dq_bytes / kAddedBytes : 0;
  // A wgmma is 16 deep. It reads B, 32 bytes a column, and A, 64 rows, unless that is in registers,
  // as P is, the ones of a term, and dS for dK but in split(). S and dP have a consumer's 64 keys
  // as rows, and so have dK and dV; dQ has queries.
  constexpr double kA = 64 * 32, kB = 32;
  const double makers = kv / 64;  // of 64 keys of S; of dK and dV the same
  const double scores = makers * ((qk + v) / 16 * (kA + kB * q) + terms * kB * q);
  const double dv = makers * q / 16 * kB * v,
               dk = makers * q / 16 * ((c.split() ? kA : 0) + kB * qk);
  const double dq_blocks = c.dq_by_rows() ? q / 64 : c.split() ? 1 : c.consumer_wgs;
  const double dq_block_columns = c.dq_columns();
  const double dq = dq_blocks * c.cluster_kv() / 16 * (kA + kB * dq_block_columns);
  // Q, dO and what comes with them arrive; dS is stored, in a cluster also sent and received; dQ is
  // stored, and read by what adds it.
  const double moved = c.q_tile().bytes() + c.dout_tile().bytes() + c.stats_bytes() +
                       c.delta_bytes() + (c.split() ? 3 : 1) * c.ds_tile().bytes() +
                       (sums_dq ? 2 : 1) * dq_bytes;
  cost.shared_memory = (scores + dv + dk + dq + moved) / kSharedBytes;
  return cost;
}

BwdEstimate bwd_estimate(const BwdPlan& plan, const Problem& p) {
  const BwdConfig& c = plan.config;
  BwdEstimate e;
  const double stats = static_cast<double>(plan.stats_bytes()),
               sums = static_cast<double>(plan.sums_bytes()),
               flags = static_cast<double>(plan.flags_bytes());
  if (plan.bounds > 0) e.bound_s = bytes_of(p, {kK, kV}) / kMemoryBytesPerS;
  // Of what the main kernel sets nothing reaches memory twice.
  const double share = plan.stores_dq ? 0
                       : plan.zero_ahead == 0
                           ? 1
                           : static_cast<double>(plan.zero_ahead) / static_cast<double>(plan.heads);
  const double set_to_0 = share * sums + flags;
  e.delta_s = (bytes_of(p, {kO, kDout, kLse, kDlse}) + stats + set_to_0) / kMemoryBytesPerS;
  if (p.layout[kDq].present()) e.dq_s = (sums + flags + bytes_of(p, kDq)) / kMemoryBytesPerS;

  const auto q_rows = static_cast<i32>(p.q.rows), kv_rows = static_cast<i32>(p.kv.rows);
  const double step = bwd_step_cost(c, plan.sums_dq).most(),
               sequences = static_cast<double>(p.batch);
  const Band32 band = band_of(p);
  // Steps of each KV tile of a head, whose heads of a group follow, in a cluster of each CTA.
  std::vector<double> tiles;
  for (i32 key = 0; key < kv_rows; key += c.cluster_kv()) {
    const TileRange range = q_tile_range(band, q_rows, kv_rows, key, c.cluster_kv(), c.tile_q);
    tiles.push_back(std::max(range.end - range.first, 0) * static_cast<double>(p.group_size()));
    e.steps += c.cluster() * tiles.back();
  }
  const double heads = static_cast<double>(p.heads_kv) * sequences;
  e.steps *= heads;
  const double mean = e.steps / h200().multiprocessors;
  double last = mean;
  if (heads * static_cast<double>(tiles.size()) <= kMostTiles) {
    const auto ctas = static_cast<int64_t>(heads * static_cast<double>(tiles.size())) * c.cluster();
    last = makespan(h200().multiprocessors, ctas, [&](int64_t i) {
      return tiles[static_cast<size_t>(i / c.cluster() >> plan.section_log2) % tiles.size()];
    });
  }
  e.busy = last > 0 ? mean / last : 1;
  const double by_steps = last * step / (kClockGhz * 1e9);
  const double by_memory =
      (bytes_of(p, {kQ, kK, kV, kDout, kDk, kDv}) + stats + sums) / kMemoryBytesPerS;
  e.main_by_memory = by_memory > by_steps;
  e.main_s = std::max(by_steps, by_memory);
  return e;
}

}  // namespace fa3::sm90
