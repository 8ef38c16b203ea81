// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — which of the quantising kernels run, how, and their names.
#include "plan/sm90/quantize/plan.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/dtype.h"
#include "device/sm90/quantize/args.h"
#include "plan/sm90/float_types.h"
#include "plan/sm90/quantize/limits.h"
#include "runtime/launch_shape.h"

namespace fa3::sm90 {
namespace {

// The block of rows as a kernel's configuration has it: 0 where no CTA holds one.
int held_rows(const Problem& p, const TurnConfig& turn) {
  const ScaleBlock& block = p.block_of(kCodes);
  if (block.by_total_row || block.rows == 1) return 1;
  // Less than half of a CTA's rows would leave the others idle.
  if (block.of_tensor || 2 * block.rows < turn.rows() || block.rows > 256) return 0;
  const auto rows = static_cast<int>(block.rows);
  const QuantizeConfig held{turn, false, rows};
  // Loads into registers take more of them than TMA.
  const int most = turn.by_gemm() ? TurnConfig::kMostValues : TurnConfig::kMostValues / 2;
  return held.turns() * turn.depth() * turn.values() > most ? 0 : rows;
}

// The configuration of the kernel for rotated rows with a scale each. None for other rows, and
// where consumers would be idle for want of heads.
std::optional<RotatedConfig> rotated_of(const Problem& p, const QuantizeConfig& codes) {
  if (codes.turn.rotary == RotaryKind::kNone || codes.turn.x == FloatType::kF32 ||
      codes.block_rows != 1 || p.layout[kOffset].present())
    return std::nullopt;
  if (!p.q.varlen && p.q.rows * p.batch == 0) return std::nullopt;  // no tiles
  const RotatedConfig rotated = RotatedConfig::of(codes, p.heads_q);
  const bool fits = rotated.codes.turn.values() <= TurnConfig::kMostValues &&
                    rotated.smem_bytes() <= static_cast<int>(kHopperSmemBytes);
  if (!fits || !rotated.keeps_busy(p.heads_q)) return std::nullopt;
  return rotated;
}

// The tiles of that kernel, whose CTAs stay.
Status set_tiles(const Problem& p, const RotatedConfig& rotated, int64_t rows,
                 const DeviceInfo& device, QuantizePlan& plan) {
  constexpr int64_t kMostHeads = 32;
  const int64_t sms = std::max(device.multiprocessors, 1);
  const int64_t of_sequence = div_up(rows, rotated.rows());
  // At most, of packed sequences: each has one that is not full, and the rows behind the last do.
  int64_t parts = of_sequence * p.batch;
  if (p.q.varlen) {
    const int64_t scaled = p.block_of(kCodes).by_total_row ? 0 : parts;
    parts = p.q.rows / rotated.rows() + p.batch + 1 + scaled;
  }
  // As many heads as leave each SM some tiles: they share the tables.
  int64_t groups = div_up(p.heads_q, kMostHeads);
  while (groups < p.heads_q && parts * groups < 2 * sms) ++groups;
  const int64_t heads = div_up(p.heads_q, groups);
  groups = div_up(p.heads_q, heads);
  const int64_t tiles = parts * groups;
  FA3_RETURN_IF_ERROR(
      check_quantize_limit("tiles of rows", tiles, INT32_MAX / 2, "split the batch"));
  plan.rotated = {static_cast<i32>(tiles), p.q.varlen ? 0 : static_cast<i32>(of_sequence),
                  static_cast<i32>(groups), static_cast<i32>(heads)};
  plan.pass = QuantizePass::kRotated;
  plan.config = rotated.codes;
  plan.row_blocks = rotated.row_blocks;
  plan.grid[0] = static_cast<uint32_t>(std::clamp<int64_t>(tiles, 1, sms));
  // SMs are not equally fast at memory, so whoever is next takes a tile; but the count of tiles
  // taken has to be zeroed first, which takes 2 us.
  if (tiles > 8 * sms) plan.counts_bytes = sizeof(uint32_t);
  return {};
}

// CTAs that share `tiles` of each of so many sequences and heads, where an SM has room for of_sm.
// A CTA takes a few tiles, since what it makes beforehand costs half a tile's time; no more, since
// SMs are not equally fast and the last CTAs begin where the first have ended. Where a CTA is alone
// on an SM, nothing hides its beginning.
int64_t ctas_of(int64_t tiles, int64_t entries, int of_sm, int multiprocessors) {
  const int64_t most = of_sm > 1 ? 4 : 8, room = int64_t{of_sm} * std::max(multiprocessors, 1);
  int64_t best = 1;
  double least = 0;
  for (int64_t each = 1; each <= most; ++each) {
    const int64_t rounds = div_up(div_up(tiles, each) * std::max<int64_t>(entries, 1), room);
    const double time = static_cast<double>(rounds) * (static_cast<double>(each) + 0.5);
    if (each == 1 || time <= least) best = each, least = time;
  }
  return div_up(tiles, best);
}

}  // namespace

int64_t quantize_chunks(const Problem& p) {
  return div_up(std::min(p.q.rows, p.q.max_seqlen), kSumRows);
}

Result<QuantizeConfig> quantize_config(const Problem& p) {
  FA3_TRY(const TurnConfig turn, turn_of(p));
  FA3_RETURN_IF_ERROR(check_quantize(p));
  return QuantizeConfig{turn, p.layout[kCodes].dtype == FA3_I8, held_rows(p, turn)};
}

Result<std::vector<QuantizePlan>> make_quantize_plans(const Problem& p, const DeviceInfo& device) {
  FA3_TRY(const QuantizeConfig config, quantize_config(p));
  return quantize_plans_of(config, p, device);
}

Result<std::vector<QuantizePlan>> quantize_plans_of(const QuantizeConfig& config, const Problem& p,
                                                    const DeviceInfo& device) {
  const TurnConfig& turn = config.turn;
  const ScaleBlock& block = p.block_of(kCodes);
  QuantizePlan plan;
  plan.config = config;
  const int64_t rows = std::min(p.q.rows, p.q.max_seqlen), entries = p.batch * p.heads_q;
  const bool mean = p.layout[kOffset].present() && entries > 0;
  if (plan.config.block_rows == 0) {
    const int64_t blocks =
        block.of_tensor ? 1 : entries * (block.rows == 0 ? 1 : div_up(p.q.max_seqlen, block.rows));
    plan.maxima_bytes = sizeof(uint32_t) * static_cast<size_t>(blocks * turn.col_blocks());
  }
  if (mean) {
    plan.counts_bytes = sizeof(uint32_t) * static_cast<size_t>(entries);
    plan.sums_bytes =
        sizeof(ColumnSums) * static_cast<size_t>(entries * quantize_chunks(p) * p.head_dim_qk);
  }
  plan.maxima_of_means = mean && (block.of_tensor || block.rows == 0);
  std::vector<QuantizePlan> plans;
  const auto add = [&](QuantizePass pass, int64_t y, int64_t more_entries) {
    plan.pass = pass;
    plan.grid[0] = static_cast<uint32_t>(std::max<int64_t>(p.heads_q, 1));
    plan.grid[1] = static_cast<uint32_t>(std::clamp<int64_t>(y, 1, kMaxQuantizeGrid));
    plan.grid[2] = static_cast<uint32_t>(std::max<int64_t>(p.batch + more_entries, 1));
    plans.push_back(plan);
  };
  // Where lengths are known to the kernels only, most tiles may have no rows: then no more CTAs
  // than these, each of which goes over what there is.
  constexpr int64_t kMostOfSm = 64;
  const int64_t most =
      p.q.varlen || p.q.seqused
          ? div_up(kMostOfSm * std::max(device.multiprocessors, 1), std::max<int64_t>(entries, 1))
          : kMaxQuantizeGrid;
  const int64_t ctas = min(ctas_of(div_up(rows, plan.config.rows()), entries,
                                   plan.config.ctas_of_sm(), device.multiprocessors),
                           most);
  if (const std::optional<RotatedConfig> rotated = rotated_of(p, plan.config)) {
    FA3_RETURN_IF_ERROR(set_tiles(p, *rotated, rows, device, plan));
    return std::vector<QuantizePlan>{plan};
  }
  if (mean) add(QuantizePass::kMeans, min(quantize_chunks(p), most), 0);
  if (plan.config.block_rows == 0 && entries > 0 && !plan.maxima_of_means)
    add(QuantizePass::kMaxima, ctas, 0);
  add(QuantizePass::kCodes, ctas, p.q.varlen ? 1 : 0);
  return plans;
}

LaunchShape shape_of(const QuantizePlan& plan) {
  const TurnConfig& turn = plan.config.turn;
  LaunchShape shape;
  std::copy(std::begin(plan.grid), std::end(plan.grid), shape.grid);
  shape.pdl = true;
  int threads = 0, bytes = 0;
  switch (plan.pass) {
    case QuantizePass::kMeans:
      shape.interacting = true;
      threads = turn.sum_threads(), bytes = turn.sum_bytes();
      break;
    case QuantizePass::kMaxima:
      shape.interacting = true;
      threads = turn.threads(), bytes = turn.smem_bytes();
      break;
    case QuantizePass::kCodes:
      threads = plan.config.threads(), bytes = plan.config.smem_bytes();
      break;
    case QuantizePass::kRotated:
      shape.interacting = plan.counts_bytes > 0;
      threads = rotated_config(plan).threads(), bytes = rotated_config(plan).smem_bytes();
      break;
  }
  shape.threads = static_cast<u32>(threads);
  shape.smem_bytes = static_cast<u32>(bytes);
  return shape;
}

// The kernels of a quantisation use all of them: each finds what those before have left.
std::vector<Slice> writes(const QuantizePlan& plan) {
  return {{kMaximaSlice, plan.maxima_bytes, sizeof(uint32_t), true},
          {kCountsSlice, plan.counts_bytes, sizeof(uint32_t), true},
          {kSumsSlice, plan.sums_bytes}};
}

std::string name_of(const QuantizePlan& plan) {
  const TurnConfig& turn = plan.config.turn;
  std::string name =
      fmt::format("quantize/{}/d{}/{}", pass_name(plan.pass), turn.head_dim, word(turn.x));
  if (turn.hadamard > 0) name += fmt::format("/h{}", turn.hadamard);
  if (turn.rotary != RotaryKind::kNone)
    name += fmt::format("/{}{}_{}", turn.rotary == RotaryKind::kHalves ? "halves" : "pairs",
                        turn.rotary_dim, word(turn.table));
  if (!is_of_codes(plan.pass)) return name;
  if (turn.block_cols > 0) name += fmt::format("/c{}", turn.block_cols);
  name += plan.config.to_i8 ? "/i8" : "/e4m3";
  if (plan.pass != QuantizePass::kMaxima) name += fmt::format("/r{}", plan.config.block_rows);
  return name;
}

std::string head_dims_text(const QuantizePlan& plan) {
  return std::to_string(plan.config.turn.head_dim);
}

void describe(const QuantizePlan& plan, const Problem&, Json& json) {
  Json& own = json["quantize_kernels"][name_of(plan)];
  own["kernel"] = program_of(plan).expression;
  for (const uint32_t extent : plan.grid) own["grid"].push_back(extent);
}

}  // namespace fa3::sm90
