// SPDX-License-Identifier: BSD-3-Clause
// roofline.cpp — rates, costs of a tile, and the grid's time as a sum of them.
//
// Where the rates come from, in bench/results/nvidia-h200/2026-11-20-*:
//   kMmaFlops          selftest-measure.json, wgmma/rs/bf16/n128: 64·128·16·2 FLOP in 64 clocks
//   kExponentials      the same, instruction/ex2
//   kWarpInstructions  an SM has four schedulers
//   kSharedBytes       32 banks of 4 bytes; wgmma with A and B there at n8, n32 and n64 reads 2304,
//                      3072 and 4096 bytes in the 18, 24 and 32 clocks of selftest-measure.json
//   kClockGhz          fwd-grid.jsonl, the cells' median. The clock falls as power is drawn: 1.89
//                      at head dim 64, 1.75 at 128 and 256
//   kMemoryBytesPerS   fwd-grid.jsonl, "copy 1 GiB"
#include "plan/sm90/roofline.h"

#include <algorithm>
#include <vector>

#include "core/dtype.h"
#include "plan/sm90/makespan.h"

namespace fa3::sm90 {
namespace {

// Clocks of a Q tile in addition to its KV tiles: the wait for work and Q, the first and the last
// GEMM, the store of O. Fitted to 2026-11-20-fwd-grid.jsonl, the only fitted number here.
constexpr double kQTileClocks = 3500;

// Beyond this many Q tiles the last wave is too short a part to be worth simulating.
constexpr uint32_t kMostTiles = 1 << 20;

// Of a warp for 16 keys of 32 columns of V that it transposes, by which two of four schedulers have
// one more warp: counted in the machine code.
constexpr double kTurnInstructions = 9;

struct Clocks {
  double least = 0, expected = 0;
};

// One KV tile, without a mask and with one.
struct StepClocks {
  Clocks unmasked, masked;

  explicit StepClocks(const FwdConfig& c) : unmasked(of(c, false)), masked(of(c, true)) {}

 private:
  static Clocks of(const FwdConfig& c, bool masked) {
    const TileCost cost = tile_cost(c, masked);
    return {cost.most(), expected_clocks(c, cost)};
  }
};

Clocks q_tile_clocks(const FwdPlan& plan, const Problem& p, const StepClocks& step, int64_t tile) {
  const FwdConfig& c = plan.config;
  // Parts of the CTA with KV ranges of their own.
  const int parts = c.skips() ? c.tile.consumer_wgs : 1;
  const int rows = c.tile.q() / parts;
  Clocks sum{0, kQTileClocks};
  for (int part = 0; part < parts; ++part) {
    const auto row = static_cast<int32_t>(tile * c.tile.q() + part * rows);
    const TileRange range = tile_range(plan.band, static_cast<int32_t>(p.q.rows),
                                       static_cast<int32_t>(p.kv.rows), row, rows, c.tile.kv);
    if (range.empty()) continue;
    const int all = range.end - range.first;
    const int unmasked = std::clamp(range.unmasked_end - range.unmasked_first, 0, all - 1);
    const int masked = all - unmasked;  // the first one always
    sum.least += (unmasked * step.unmasked.least + masked * step.masked.least) / parts;
    sum.expected += (unmasked * step.unmasked.expected + masked * step.masked.expected) / parts;
  }
  return sum;
}

// When the last CTA of a persistent grid ends if each takes the next tile as it becomes free. Tiles
// of equal length end at the same time without a counter, too.
double last_end(const FwdPlan& plan, const std::vector<Clocks>& q_tiles, double Clocks::*of) {
  return makespan(plan.grid, plan.order.tiles(), [&](int64_t i) {
    return q_tiles[plan.order.at(static_cast<uint32_t>(i)).tile].*of;
  });
}

double tensor_bytes(const Problem& p) {
  const auto of = [&](const SeqAxis& axis, int64_t heads, int64_t columns, int bytes) {
    return static_cast<double>(axis.rows) * static_cast<double>(p.batch * heads * columns) * bytes;
  };
  const auto size = [&](TensorId id) { return static_cast<int>(dtype_bytes(p.layout[id].dtype)); };
  return of(p.q, p.heads_q, p.head_dim_qk, size(kQ)) + of(p.q, p.heads_q, p.head_dim_v, size(kO)) +
         of(p.kv, p.heads_kv, p.head_dim_qk, size(kK)) +
         of(p.kv, p.heads_kv, p.head_dim_v, size(kV)) +
         (p.layout[kLse].present() ? of(p.q, p.heads_q, 1, 4) : 0);
}

}  // namespace

DeviceInfo h200() {
  DeviceInfo device;
  device.type = FA3_DEVICE_CUDA;
  device.backend = FA3_BACKEND_CUDA;
  device.sm = 90;
  device.multiprocessors = 132;
  device.l2_bytes = 50 << 20;
  device.name = "NVIDIA H200";
  return device;
}

double TileCost::most() const { return std::max({mma, exponentials, issue, shared_memory}); }

const char* TileCost::limiter() const {
  if (mma == most()) return "mma";
  if (exponentials == most()) return "exponentials";
  return issue == most() ? "issue" : "shared_memory";
}

// Counted in the machine code that ptxas 13.0 makes of every row, to which fwd_programs_test.cpp
// holds it. A thread has tile_kv / 2 scores and four instructions for each: the FMA with the scale
// and the maximum, the exponential, the sum, half a maximum of three, half a conversion. A mask
// adds a comparison and a selection, a window one more comparison.
double step_instructions(const FwdConfig& c, bool masked) {
  const double scores = c.tile.kv / 2.;
  double per_score = 4;
  if (masked) per_score += has_left_edge(c.mask.kind) ? 3 : 2;
  if (c.scores.kind != ScoreKind::kPlain) per_score += c.scores.kind == ScoreKind::kSoftcap ? 2 : 1;
  if (is_int8(c.types.qk)) per_score += c.scores.kind == ScoreKind::kPlain ? 1 : 2;  // to FP32
  if (c.types.v8()) per_score += 0.25;  // four bytes of P to a word
  // By columns, roughly: a product with its scales and a sum for each score and part.
  if (c.scores.column_scales()) per_score += 2. * c.tile.head_dim_qk / c.scores.scale_columns;
  const int wgmmas =
      c.tile.head_dim_qk / c.types.qk_step() + c.pv_parts() * c.tile.kv / c.types.pv_step();
  const int turns = c.overlap.ping_pong ? 12 : 0;
  const double additions = c.accumulate.flush_columns > 0 ? c.tile.head_dim_v / 2. : 0;  // to O
  const int pairs = c.pairs_parts() ? 8 * c.pv_parts() : 0;  // their descriptors, P moved
  double scales = 0;
  if (c.scores.kv_scales == KvScales::kTiles) scales = c.types.v8() ? 55 : 30;
  if (c.scores.kv_scales == KvScales::kKeys) scales = (c.types.v8() ? 2 : 1) * (5 * scores + 40);
  return per_score * scores + additions + scales + 4 * wgmmas +
         (c.scores.softmax.test_first ? 50 : 70) + turns + pairs;
}

// A second pass over scores, and O rescaled.
double rare_instructions(const FwdConfig& c) {
  const bool integers = is_int8(c.types.qk) && c.scores.kind == ScoreKind::kPlain;
  return (integers ? 1.5 : 1) * c.tile.kv + c.tile.head_dim_v / 2. +
         (c.scores.softmax.test_first ? 50 : 30) +
         (c.scores.softmax.keeps_greatest ? c.tile.kv / 2. + 10 : 0);  // of negative scores
}

TileCost tile_cost(const FwdConfig& c, bool masked) {
  const double wgs = c.tile.consumer_wgs;
  const double scores = static_cast<double>(c.tile.q()) * c.tile.kv;
  TileCost cost;
  const double qk_flops = c.types.scaled() ? 2 * kMmaFlops : kMmaFlops;
  const double pv_flops = c.types.v8() ? 2 * kMmaFlops : kMmaFlops;
  cost.mma = 2 * scores * (c.tile.head_dim_qk / qk_flops + c.tile.head_dim_v / pv_flops);
  cost.exponentials = scores * (c.scores.kind == ScoreKind::kSoftcap ? 2 : 1) / kExponentials;
  cost.issue = 4 * wgs * step_instructions(c, masked) / kWarpInstructions;
  if (c.transposes()) cost.issue += kTurnInstructions * c.tile.kv * c.tile.head_dim_v / 512;
  // A wgmma is 32 bytes deep. It reads B, 32 bytes a column, and A, 2 KiB, unless that is in
  // registers, as P is.
  constexpr double kA = 64 * 32, kB = 32;
  const int qk_steps = c.tile.head_dim_qk / c.types.qk_step(),
            pv_steps = c.tile.kv / c.types.pv_step();
  const double qk = qk_steps * (kA + kB * c.tile.kv), pv = pv_steps * kB * c.tile.head_dim_v;
  const double filled = c.k_tile().bytes() + (c.transposes() ? 3 : 1) * c.v_tile().bytes();
  cost.shared_memory = (wgs * (qk + pv) + filled) / kSharedBytes;
  return cost;
}

// A consumer that issues its GEMMs is held until they are issued, and does not compute. With one
// consumer, nothing overlaps its exponentials either.
double expected_clocks(const FwdConfig& c, const TileCost& cost) {
  const double alone = c.tile.consumer_wgs == 1 ? cost.exponentials : 0;
  return std::max(cost.most(), cost.mma + cost.issue + alone);
}

Estimate estimate(const FwdPlan& plan, const Problem& p, double clock_ghz) {
  const double clocks_per_s = clock_ghz * 1e9;
  const int64_t q_tiles = plan.order.q_tiles;
  const StepClocks step(plan.config);
  std::vector<Clocks> each(plan.order.tiles() <= kMostTiles ? q_tiles : 0);
  Clocks sum;
  for (int64_t i = 0; i < q_tiles; ++i) {
    const Clocks one = q_tile_clocks(plan, p, step, i);
    if (!each.empty()) each[i] = one;
    sum.least += one.least * plan.order.heads;
    sum.expected += one.expected * plan.order.heads;
  }
  Estimate e;
  if (plan.grid == 0) return e;
  const Clocks mean{sum.least / plan.grid, sum.expected / plan.grid};
  const double least = each.empty() ? mean.least : last_end(plan, each, &Clocks::least);
  const double expected = each.empty() ? mean.expected : last_end(plan, each, &Clocks::expected);
  e.memory_s = tensor_bytes(p) / kMemoryBytesPerS;
  e.least_s = std::max(least / clocks_per_s, e.memory_s);
  e.expected_s = std::max(expected / clocks_per_s, e.memory_s);
  e.busy = expected > 0 ? mean.expected / expected : 1;
  return e;
}

}  // namespace fa3::sm90
