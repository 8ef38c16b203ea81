// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — what the backward kernels take, which row of the table, and the grids.
#include "plan/sm90/bwd/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "core/dtype.h"
#include "core/tuning.h"
#include "device/sm90/bwd/rows.h"
#include "plan/sm90/bwd/configs.h"
#include "plan/sm90/features.h"
#include "plan/sm90/fwd/names.h"
#include "plan/sm90/tensor_limits.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kMaxGrid = kMostBwdSequences;  // of y and z: heads, sequences

// Keys that are worth a CTA of bwd_bound, and the most CTAs of a head: each CTA of bwd_delta reads
// what they have found.
constexpr int64_t kBoundKeys = 128, kMostBounds = 64;

// A section's Q, dO and sums of dQ stay in the L2 cache (50 MB) while its KV tiles visit them. With
// more heads than 16 the CTAs begin and end at the same time, and memory is busy then and idle in
// between. Measured: docs/tuning/bwd_sm90.md.
constexpr int64_t kSectionBytes = 40'000'000, kMostSectionHeads = 16;

// log2 of the KV heads of a section: the greatest power of two that divides all of them.
uint32_t section_log2(const Problem& p, int64_t kv_tiles) {
  const int64_t of_query = 2 * (p.head_dim_qk + p.head_dim_v) + 4 * p.head_dim_qk,
                of_head = std::max<int64_t>(most_rows(p.q) * p.group_size() * of_query, 1),
                of_grid = std::numeric_limits<int32_t>::max() / std::max<int64_t>(kv_tiles, 1),
                most = std::min({kSectionBytes / of_head, of_grid, kMostSectionHeads});
  uint32_t log2 = 0;
  while (p.heads_kv % (int64_t{2} << log2) == 0 && int64_t{2} << log2 <= most) ++log2;
  return log2;
}

// ---- What is declined ---------------------------------------------------------------------------

Status check_what(const Problem& p) {
  const fa3_dtype dtype = p.layout[kQ].dtype;
  FA3_RETURN_IF_ERROR(check_features(p));
  if (p.layout[kDout].dtype != dtype)
    return unsupported("backward: dout is {} on sm90, need {}, the type of q; convert it",
                       dtype_name(p.layout[kDout].dtype), dtype_name(dtype));
  // The kernels make tanh of log2 P / softcap again.
  constexpr double kLeastSoftcap = 0.25;
  if (p.softcap > 0 && p.softcap < kLeastSoftcap)
    return unsupported("backward: softcap={} on sm90, need at least {}; use backend cpu", p.softcap,
                       kLeastSoftcap);
  return {};
}

Status check_tensors(const Problem& p, bool ragged) {
  const fa3_dtype dtype = p.layout[kQ].dtype;
  FA3_RETURN_IF_ERROR(check_head_dim(p, "head_dim_qk", p.head_dim_qk, dtype));
  FA3_RETURN_IF_ERROR(check_head_dim(p, "head_dim_v", p.head_dim_v, dtype));
  for (const TensorId id : {kQ, kK, kV, kDout}) FA3_RETURN_IF_ERROR(check_strides(p, id, ragged));
  for (const TensorId id : {kO, kDq, kDk, kDv})
    if (p.layout[id].present()) FA3_RETURN_IF_ERROR(check_strides(p, id, false));
  FA3_RETURN_IF_ERROR(check_axis(p, "query", kQ, kDout, ragged));
  FA3_RETURN_IF_ERROR(check_axis(p, "key", kK, kV, ragged));
  if (p.heads_q >= kMaxGrid)
    return unsupported("backward: heads_q={} on sm90, need fewer than {}; split the heads",
                       p.heads_q, kMaxGrid);
  return {};
}

bool has_functors(const Problem& p) { return p.has_alibi() || p.has_sequence_ids(); }

BwdConfig with_terms(BwdConfig config, const Problem& p) {
  config.softcap = p.softcap > 0;
  config.functors = has_functors(p);
  config.attn_mask = mask_tensor_of(p);
  return config;
}

// Without columns that the problem does not have, while its tiles of keys remain.
BwdConfig narrow_gradient_of(BwdConfig config, const Problem& p) {
  const BwdConfig wide = gradient_of(config);
  const auto fitted = [](int columns, int64_t used) {
    return std::min(columns, static_cast<int>(round_up(std::max<int64_t>(used, 1), 64)));
  };
  config.head_dim_qk = fitted(config.head_dim_qk, p.head_dim_qk);
  config.head_dim_v = fitted(config.head_dim_v, p.head_dim_v);
  return config.wide() == wide.wide() ? gradient_of(config) : wide;
}

// Whether a KV tile that has all keys visits every Q tile.
bool visits_all(const BwdConfig& c, const Problem& p) {
  if (has_lengths(p)) return false;
  const auto queries = static_cast<i32>(p.q.rows), keys = static_cast<i32>(p.kv.rows);
  const TileRange range = q_tile_range(band_of(p), queries, keys, 0, c.cluster_kv(), c.tile_q);
  return range.first == 0 && range.end == div_up(queries, c.tile_q);
}

// CTAs of the main kernel that a KV head of the longest sequence has.
int64_t ctas_of_head(const BwdConfig& c, const Problem& p) {
  return div_up(most_rows(p.kv), c.cluster_kv()) * c.cluster();
}

// A head has one KV tile, which visits all Q tiles, so dQ's sums are stored.
bool stores_dq(const BwdConfig& c, const Problem& p) {
  return p.layout[kDq].present() && ctas_of_head(c, p) == c.cluster() && !c.lists() &&
         visits_all(c, p);
}

// KV heads from that of a CTA to that whose sums of dQ it sets to 0: whole sections, so many that
// the CTAs of a GPU have begun between who sets them and who adds. 0: there are not as many heads,
// or nothing to set.
int64_t zero_ahead(const BwdConfig& c, const Problem& p, int multiprocessors) {
  const int64_t ctas = ctas_of_head(c, p);
  const bool none = !p.layout[kDq].present() || has_no_rows(p) || ctas == 0;
  if (none || stores_dq(c, p)) return 0;
  const int64_t heads = int64_t{1} << section_log2(p, ctas);
  const int64_t ahead = heads * div_up(std::max(multiprocessors, 1), heads * ctas);
  return ahead < p.heads_kv * p.batch ? ahead : 0;
}

// Whether the main kernel sets them, which shortens what comes before it, where that is much of the
// time.
bool sets_zeros(const BwdConfig& c, const BwdRow& row, const Problem& p, const DeviceInfo& device) {
  if (!can_set_zeros(c, row)) return false;
  const double kv_tiles = static_cast<double>(div_up(most_rows(p.kv), c.cluster_kv())) *
                          static_cast<double>(p.heads_q) * static_cast<double>(p.batch);
  return zero_ahead(c, p, device.multiprocessors) > 0 &&
         tiles_of(p, c.tile_q, c.cluster_kv()).visited <= row.zero_tiles * kv_tiles;
}

// Tiles of dattn_mask, each of which a CTA makes; in the kernel's order (MaskGradientArgs).
int64_t gradient_tiles(const BwdConfig& gradient, const Problem& p) {
  const MaskExtents& n = p.mask_grad;
  return n.batch * n.heads * div_up(n.rows, gradient.tile_q * gradient.parts()) *
         div_up(n.columns, gradient.tile_kv());
}

// Beyond the scale and the band.
bool has_terms(const Problem& p) { return p.softcap > 0 || has_functors(p) || p.has_mask(); }

// Why a row cannot run a problem; "" = it can.
std::string why_not(const Problem& p, const BwdRow& row) {
  const BwdConfig& c = row.config;
  if (p.head_dim_qk > c.head_dim_qk)
    return fmt::format("head_dim_qk up to {}, here {}", c.head_dim_qk, p.head_dim_qk);
  if (p.head_dim_v > c.head_dim_v)
    return fmt::format("head_dim_v up to {}, here {}", c.head_dim_v, p.head_dim_v);
  if (has_terms(p) && c.staggered()) return "no softcap, ALiBi, sequence ids and attn_mask";
  if (why_illegal(with_terms(c, p)) != nullptr)
    return "no attn_mask beside softcap, ALiBi or sequence ids, but one of bool beside one of them";
  return "";
}

// The table's first that fits, and what a tuning names; or null.
const BwdRow* row_by_rule(const Problem& p) {
  const auto* const row = std::find_if(std::begin(kBwdRows), std::end(kBwdRows),
                                       [&](const BwdRow& r) { return why_not(p, r).empty(); });
  return row == std::end(kBwdRows) ? nullptr : row;
}
const BwdRow* row_named(const std::string& name) {
  const auto* const row = std::find_if(std::begin(kBwdRows), std::end(kBwdRows),
                                       [&](const BwdRow& r) { return name == r.name; });
  return row == std::end(kBwdRows) ? nullptr : row;
}

int smem_bytes_of(const BwdPlan& plan) {
  switch (plan.pass) {
    case BwdPass::kBound:
      return plan.config.bound_smem_bytes();
    case BwdPass::kDelta:
      return plan.config.delta_smem_bytes();
    case BwdPass::kDq:
      return plan.config.dq_smem_bytes();
    case BwdPass::kMaskGradient:
      return plan.gradient.smem_bytes();
    case BwdPass::kSinks:
      return kBwdSinksSmemBytes;
    default:
      return plan.config.smem_bytes();
  }
}

}  // namespace

const char* word(BwdPass pass) {
  switch (pass) {
    case BwdPass::kBound:
      return "bound";
    case BwdPass::kDelta:
      return "delta";
    case BwdPass::kMain:
      return "main";
    case BwdPass::kMaskGradient:
      return "mask_gradient";
    case BwdPass::kSinks:
      return "sinks";
    default:
      return "dq";
  }
}

std::vector<RejectedBwdRow> rejected_bwd_rows(const Problem& p, std::string_view used) {
  std::vector<RejectedBwdRow> rejected;
  for (const BwdRow& row : kBwdRows) {
    if (row.name == used) continue;
    const std::string why = why_not(p, row);
    rejected.push_back(
        {row.name, why.empty() ? "fits too, but stands behind the row that is used" : why});
  }
  return rejected;
}

std::vector<BwdConfig> mask_gradients_of(const BwdConfig& main) {
  std::vector<BwdConfig> all;
  BwdConfig narrow = main;
  for (narrow.head_dim_qk = 64; narrow.head_dim_qk <= main.head_dim_qk; narrow.head_dim_qk += 64)
    for (narrow.head_dim_v = 64; narrow.head_dim_v <= main.head_dim_v; narrow.head_dim_v += 64)
      if (narrow.wide() == main.wide()) all.push_back(gradient_of(narrow));
  return all;
}

int64_t bwd_q_tiles(const Problem& p, int tile_q) {
  return p.q.varlen ? p.q.rows / tile_q + p.batch + 1 : div_up(p.q.rows, tile_q) * p.batch;
}

bool can_set_zeros(BwdConfig config, const BwdRow& row) {
  config.sets_zeros = true;
  return row.zero_tiles > 0 && why_illegal(config) == nullptr;
}

Result<BwdChoice> choose_bwd(const Problem& p, const DeviceInfo& device) {
  FA3_RETURN_IF_ERROR(check_what(p));
  BwdChoice choice;
  choice.row = row_by_rule(p);
  if (choice.row == nullptr)
    return unsupported(
        "backward: head_dim_qk={}, head_dim_v={} on sm90, need at most 256; use backend "
        "cpu",
        p.head_dim_qk, p.head_dim_v);
  if (const std::string* const tuned = device.tuning ? device.tuning->row_of(p) : nullptr) {
    const BwdRow* const named = row_named(*tuned);
    const std::string why =
        named == nullptr ? "no row of the table is called so" : why_not(p, *named);
    choice.tuned = why.empty();
    if (choice.tuned) choice.row = named;
    if (!choice.tuned) choice.declined = fmt::format("{}: {}", *tuned, why);
  }
  choice.config = with_terms(choice.row->config, p);
  choice.config.dtype = p.layout[kQ].dtype == FA3_F16 ? MmaType::kF16 : MmaType::kBf16;
  choice.config.ragged = has_lengths(p);
  choice.config.deterministic = p.deterministic && p.layout[kDq].present();
  return choice;
}

std::vector<BwdPlan> with_choice(std::vector<BwdPlan> plans, const BwdChoice& choice) {
  for (BwdPlan& plan : plans) {
    plan.row = choice.row->name;
    plan.tuned = choice.tuned;
    plan.declined = choice.declined;
  }
  return plans;
}

Result<std::vector<BwdPlan>> make_bwd_plans(const Problem& p, const DeviceInfo& device) {
  FA3_TRY(const BwdChoice choice, choose_bwd(p, device));
  BwdConfig config = choice.config;
  config.sets_zeros = sets_zeros(config, *choice.row, p, device);
  FA3_TRY(std::vector<BwdPlan> plans,
          bwd_plans_of(config, narrow_gradient_of(config, p), p, device));
  return with_choice(std::move(plans), choice);
}

Result<std::vector<BwdPlan>> bwd_plans_of(const BwdConfig& config, const BwdConfig& gradient,
                                          const Problem& p, const DeviceInfo& device,
                                          int64_t most_sequences) {
  FA3_RETURN_IF_ERROR(check_tensors(p, config.ragged));
  BwdPlan plan;
  plan.config = config, plan.gradient = gradient;
  plan.tiles = bwd_q_tiles(p, config.tile_q) * p.heads_q;
  const int64_t ctas = ctas_of_head(config, p);
  plan.section_log2 = section_log2(p, ctas);
  plan.sums_dq = p.layout[kDq].present();
  plan.stores_dq = stores_dq(config, p);
  plan.heads = p.heads_kv * p.batch;
  plan.visits = !has_no_rows(p) && p.batch > 0;
  if (config.sets_zeros) plan.zero_ahead = zero_ahead(config, p, device.multiprocessors);
  std::vector<BwdPlan> plans;
  // In as many launches as the sequences need.
  const auto add = [&](BwdPass pass, int64_t x, int64_t heads, int64_t sequences) {
    plan.pass = pass;
    plan.grid[0] = static_cast<uint32_t>(std::max<int64_t>(x, 1));
    plan.grid[1] = static_cast<uint32_t>(std::max<int64_t>(heads, 1));
    plan.first_sequence = 0;
    do {
      const int64_t most = most_sequences, left = sequences - plan.first_sequence;
      plan.grid[2] = static_cast<uint32_t>(std::clamp<int64_t>(left, 1, most));
      plan.sequences = pass == BwdPass::kMaskGradient || pass == BwdPass::kSinks
                           ? p.batch
                           : std::clamp<int64_t>(p.batch - plan.first_sequence, 0, most);
      plans.push_back(plan);
      plan.first_sequence += most;
    } while (plan.first_sequence < sequences);
  };
  if (config.adds_mask()) {
    plan.image = mask_image_shape(p);
    FA3_RETURN_IF_ERROR(check_mask_image_shape(plan.image));
  } else if (config.has_mask()) {
    plan.mask = mask_shape(p, config.tile_q, config.tile_kv());
    FA3_RETURN_IF_ERROR(check_mask_shape(plan.mask, "backward"));
  }
  const int64_t q_tiles = div_up(most_rows(p.q), config.tile_q);
  const bool queries = !has_no_rows(p);
  if (config.deterministic && queries && p.batch > 0) {
    plan.bound_entries = clamp(div_up(most_rows(p.kv), kBoundKeys), 1, kMostBounds);
    plan.bounds = plan.bound_entries * p.heads_kv * p.batch;
    add(BwdPass::kBound, plan.bound_entries, p.heads_kv, p.batch);
  }
  if (queries && p.batch > 0) add(BwdPass::kDelta, q_tiles, p.heads_q, p.batch);
  if (p.layout[kDk].present() || p.layout[kDv].present() || p.layout[kDq].present())
    add(BwdPass::kMain, ctas << plan.section_log2, p.heads_kv >> plan.section_log2,
        p.batch + (p.kv.varlen ? 1 : 0));
  if (p.layout[kDattnMask].present()) {
    const int64_t tiles = gradient_tiles(gradient, p);
    if (tiles >= int64_t{1} << 31)
      return unsupported(
          "backward: dattn_mask of {} batch entries, {} heads, {} queries and {} keys on sm90: {} "
          "tiles, need fewer than 2^31; split the batch",
          p.mask_grad.batch, p.mask_grad.heads, p.mask_grad.rows, p.mask_grad.columns, tiles);
    if (tiles > 0)
      add(BwdPass::kMaskGradient, std::min<int64_t>(tiles, std::max(device.multiprocessors, 1)), 1,
          1);
  }
  if (queries && p.layout[kDq].present())
    add(BwdPass::kDq, q_tiles, p.heads_q, p.batch + (p.q.varlen ? 1 : 0));
  if (p.layout[kDsinks].present() && p.heads_q > 0)
    add(BwdPass::kSinks, p.heads_q * kBwdSinksCluster, 1, 1);
  return plans;
}

LaunchShape shape_of(const BwdPlan& plan) {
  LaunchShape shape;
  std::copy(std::begin(plan.grid), std::end(plan.grid), shape.grid);
  shape.pdl = true;
  const bool main = plan.pass == BwdPass::kMain, gradient = plan.pass == BwdPass::kMaskGradient;
  shape.threads = static_cast<u32>(main || gradient ? plan.config.threads() : kBwdRowThreads);
  shape.smem_bytes = static_cast<u32>(smem_bytes_of(plan));
  shape.cluster = main                           ? static_cast<u32>(plan.config.cluster())
                  : plan.pass == BwdPass::kSinks ? static_cast<u32>(kBwdSinksCluster)
                                                 : 1;
  shape.interacting = main;  // sums of dQ
  return shape;
}

std::string name_of(const BwdPlan& plan) {
  const BwdConfig& c = plan.config;
  const bool main = plan.pass == BwdPass::kMain || plan.pass == BwdPass::kMaskGradient;
  if (plan.pass == BwdPass::kSinks)
    return fmt::format("bwd/sinks/{}", c.ragged ? "ragged" : "dense");
  return fmt::format(
      "bwd/{}/d{}/{}/{}{}{}{}{}{}", word(plan.pass), head_dims_text(plan), word(c.dtype),
      c.ragged ? "ragged" : "dense", main && c.softcap ? "/softcap" : "",
      c.functors && plan.pass != BwdPass::kBound && (plan.pass != BwdPass::kDq || c.deterministic)
          ? "/alibi/sequence_ids"
          : "",
      (c.has_mask() && main) || (c.adds_mask() && plan.pass == BwdPass::kDelta)
          ? fmt::format("/{}", word(c.attn_mask))
          : "",
      c.deterministic ? "/deterministic" : "",
      c.sets_zeros && (plan.pass == BwdPass::kMain || plan.pass == BwdPass::kDelta) ? "/zeros"
                                                                                    : "");
}

std::string head_dims_text(const BwdPlan& plan) {
  const BwdConfig& c = plan.pass == BwdPass::kMaskGradient ? plan.gradient : plan.config;
  return c.head_dim_qk == c.head_dim_v ? std::to_string(c.head_dim_qk)
                                       : fmt::format("{}-{}", c.head_dim_qk, c.head_dim_v);
}

}  // namespace fa3::sm90
