// SPDX-License-Identifier: BSD-3-Clause
// plan.cpp — for which problems the decode kernel is used, its configuration and its grid.
#include "plan/sm90/decode/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/dtype.h"
#include "core/tuning.h"
#include "plan/sm90/decode/configs.h"
#include "plan/sm90/fwd/names.h"
#include "plan/sm90/tensor_limits.h"

namespace fa3::sm90 {
namespace {

constexpr int64_t kMostPacked = 64;  // rows of a KV head that are a tile in any case
// Weights of a comparison with the forward, in rows that a KV tile of 128 keys is computed for.
constexpr double kWorthSharing = 1.1;  // of the forward's time over that of decode, at least
// Of a row of the forward, by the consumers of its CTAs.
constexpr double kOfOne = 1.25, kOfTwo = 1, kOfThree = 0.8;
constexpr double kNarrow = 2.5;  // of decode's rows where they are not those of GEMMs
constexpr double kMerging = 7 * 128, kBeginning = 2 * 128;  // what decode takes besides
// Tiles of an SM from which on rows are those of GEMMs: each takes longer, and more rows share it.
constexpr int64_t kLeastTilesOf64 = 16, kLeastTilesOf128 = 1;
constexpr int64_t kLeastKeys = 128;  // below, a CTA has more to begin and end than to read
constexpr int64_t kKeysOfQuery = 8;  // fewer for each query are a prefill
constexpr int64_t kLeastRun = 4;     // keys that four warps load by TMA no slower than row by row
// Tiles, and rows of all sequences with those of a tile beyond, are 32 bits.
constexpr int64_t kMostTiles = (int64_t{1} << 31) - kMostDecodeRows;

const char* placement_word(const auto& config) {
  if constexpr (requires { config.kv; })
    if (config.kv != KvSource::kTensor) return word(config.kv);
  return config.cached() ? "cached" : config.ragged ? "ragged" : "dense";
}

// How many tiles packed rows may take, and parts keys; whether keys are appended, in trees or in
// chunks.
std::string tiles_text(const auto& config) {
  bool tree = false;
  if constexpr (requires { config.tree; }) tree = config.tree;
  return fmt::format("{}{}{}{}{}", config.one_tile ? "" : "/several",
                     config.part_tiles > 0 ? "/parts" : "", config.appends ? "/appends" : "",
                     tree ? "/tree" : "", config.chunks ? "/chunks" : "");
}

int64_t packed_rows(const Problem& p) { return most_rows(p.q) * p.group_size(); }

// KV tiles of all units, at most.
// With `each` for every unit.
int64_t count_tiles(const DecodeConfig& c, const Problem& p, int64_t each = 0) {
  const int64_t entries = p.batch + (p.q.varlen ? 1 : 0);
  const int64_t of_unit = std::max<int64_t>(div_up(most_rows(p.kv), c.tile_kv), 1) + each;
  const int64_t of_head = div_up(std::max<int64_t>(packed_rows(p), 1), c.rows) * of_unit;
  const int64_t of_none = p.q.varlen ? div_up(p.q.rows * p.group_size(), c.rows) : 0;
  return entries * p.heads_kv * of_head + p.heads_kv * of_none * (1 + each);
}

PartGrid part_grid(const DecodeConfig& c, const Problem& p) {
  if (c.part_tiles == 0) return {};
  const int64_t row_tiles = std::max<int64_t>(div_up(packed_rows(p), c.rows), 1);
  const int64_t per_unit = div_up(most_rows(p.kv), c.part_tiles * c.tile_kv);
  return {static_cast<uint32_t>(row_tiles), static_cast<uint32_t>(per_unit)};
}
// Slots for the parts of units, each of a tile of rows: two a CTA, or of parts of a fixed number of
// keys all that there may be. None where each unit has one part, or clusters keep theirs.
int64_t part_slots(const DecodeConfig& c, const Problem& p, int64_t ctas) {
  if (c.clusters) return 0;
  if (c.part_tiles == 0) return p.num_splits == 1 ? 0 : 2 * ctas;
  const PartGrid grid = part_grid(c, p);
  return grid.per_unit > 1 ? p.batch * p.heads_kv * grid.row_tiles * grid.per_unit : 0;
}
int64_t most_ctas(const DecodeConfig& c, const DeviceInfo& device) {
  return int64_t{device.multiprocessors} * c.ctas_per_sm;
}

// Whether tiles of packed rows whose keys are shared evenly take less time than the forward's:
// those of one head may be far from full, and SMs idle in their last wave.
bool is_sooner(const DecodeConfig& c, const FwdConfig& f, const Problem& p,
               const DeviceInfo& device) {
  const int64_t sms = std::max(device.multiprocessors, 1);
  // Of a sequence in the mean; rows may be those of longer ones, too, which are another kernel's.
  const int64_t mean = p.q.varlen ? div_up(p.q.rows, p.batch) : most_rows(p.q);
  const int64_t queries = std::min(mean, most_rows(p.q));
  const int64_t keys = div_up(most_rows(p.kv), 128);
  const int64_t waves = div_up(p.batch * p.heads_q * div_up(queries, f.tile.q()), sms);
  const double each = f.tile.consumer_wgs == 1   ? kOfOne
                      : f.tile.consumer_wgs == 2 ? kOfTwo
                                                 : kOfThree;
  const double forward = each * static_cast<double>(waves * keys * f.tile.q());
  const int64_t units = p.batch * p.heads_kv * div_up(queries * p.group_size(), c.rows);
  const double decode =
      (c.wide ? 1 : kNarrow) * static_cast<double>(div_up(units * keys, sms) * c.rows);
  return forward >= kWorthSharing * (decode + (units < sms ? kMerging : kBeginning));
}

int64_t least_tiles_of_sm(const DecodeConfig& wide) {
  return wide.rows == kWgRows ? kLeastTilesOf64 : kLeastTilesOf128;
}

// CTAs on an SM: two where there are units for both, else one, since halves of units are merged.
// One where SMs are to be free: two of a smaller grid would first spread over all.
int side_by_side(const DecodeConfig& c, const DecodeHeadDims& dims, int rows, const Problem& p,
                 const DeviceInfo& device) {
  const int64_t units = p.batch * p.heads_kv;
  return p.sm_margin == 0 && two_fit(c, dims, rows) && 16 * units >= 15 * 2 * device.multiprocessors
             ? 2
             : 1;
}

// CTAs of a cluster for each unit; 1: equal shares of all units, and a kernel that merges. Clusters
// are for units that are alike whatever lengths are, and few: so many CTAs read as fast as all SMs
// as long as there is not more for each.
int64_t cluster_of(const DecodeConfig& c, const Problem& p, const DeviceInfo& device) {
  constexpr int64_t kMostCtas = 64, kLeastCtas = 48;
  constexpr int64_t kPortable = 8, kLarge = 16;         // most CTAs of a cluster
  constexpr int64_t kSmsOfAny = 64, kSmsOfLarge = 100;  // that a GPU has, for clusters so large
  // Bytes of K and V for a CTA: where CTAs are on all parts of a GPU, where they are not, where SMs
  // compute for many rows, and with one CTA on an SM.
  constexpr int64_t kOnAll = 2 << 20, kOnSome = 448 << 10, kOfRows = 256 << 10, kOfOne = 128 << 10;
  const int64_t units = p.batch * p.heads_kv, sms = device.multiprocessors;
  const DecodeHeadDims dims{c.head_dim_qk, c.head_dim_v};
  const bool alike = p.batch == 1 || !c.ragged;
  if (units == 0 || !can_have_clusters(c) || !alike || sms < kSmsOfAny) return 1;
  // Rows of no sequence are units of the sequence's clusters, one after the other.
  if (p.q.varlen && (p.q.rows - most_rows(p.q)) * p.group_size() > c.rows) return 1;
  const int64_t cluster = std::min(kMostCtas / units, sms < kSmsOfLarge ? kPortable : kLarge);
  const bool few = units * cluster < kLeastCtas;
  if (cluster <= 1 || (few && cluster < kPortable)) return 1;
  if (p.num_splits > 0 && p.num_splits < cluster) return 1;
  const int64_t tiles = div_up(div_up(most_rows(p.kv), c.tile_kv), cluster);
  const int64_t bytes = tiles * (c.k_tile().bytes() + c.v_tile().bytes());
  const int64_t most = c.rows > 16                           ? kOfRows
                       : !c.kv8 && !two_fit(c, dims, c.rows) ? kOfOne
                       : few || cluster > kPortable          ? kOnSome
                                                             : kOnAll;
  return bytes <= most ? cluster : 1;
}

DecodeConfig with_rows(const DecodeConfig& c, const DecodeHeadDims& dims, const Problem& p,
                       const DeviceInfo& device) {
  int rows = c.rows;
  while (rows < kMostNarrowRows && rows < packed_rows(p)) rows *= 2;
  // Wide consumers rescale lazily, and have no greatest score; nor do they widen keys.
  if (rows == kMostNarrowRows && !p.has_max_logit() && !c.kv8) {
    const DecodeConfig wide =
        wide_with(c, dims, packed_rows(p) > kWgRows ? kMostDecodeRows : kWgRows);
    const int64_t least = least_tiles_of_sm(wide) * device.multiprocessors;
    if (c.part_tiles > 0 || count_tiles(wide, p) >= least) return wide;
  }
  return with_tiles(c, dims, rows, side_by_side(c, dims, rows, p, device));
}

}  // namespace

KvSource decode_source(const Problem& p, int tile_kv) { return kv_source(p, tile_kv, kLeastRun); }

std::optional<DecodeConfig> decode_config(const FwdPlan& forward, const Problem& p,
                                          const DeviceInfo& device) {
  const FwdConfig& f = forward.config;
  const bool takes =
      !f.types.scaled() && !f.types.v8() && !f.mask.has_tensor() && !p.has_sequence_ids();
  const bool alone = p.has_tree() || must_widen(p);  // the forward's kernel does not take it
  if (!takes || (forward.tuned && !alone) || has_no_keys(p)) return std::nullopt;
  const int64_t least = std::max(kLeastKeys, kKeysOfQuery * most_rows(p.q));
  if (most_rows(p.kv) < least && !alone) return std::nullopt;
  DecodeConfig c;
  c.dtype = f.types.qk;
  c.kv8 = p.has_8_bit_keys(), c.q8 = p.is_8_bit();
  c.score = f.scores.kind;
  c.alibi = p.has_alibi();
  c.o_f32 = f.output.f32;
  c.ragged = f.load.ragged;
  const auto* const dims = std::ranges::find_if(kDecodeHeadDims, [&](const DecodeHeadDims& d) {
    return p.head_dim_qk <= d.qk && p.head_dim_v <= d.v;
  });
  if (dims == std::end(kDecodeHeadDims)) return std::nullopt;
  c.part_tiles = f.accumulate.part_tiles;
  c.tree = p.has_tree();
  c.chunks = forward.band.chunks.any();
  c = with_rows(c, *dims, p, device);
  c.one_tile = packed_rows(p) <= c.rows;
  c.kv = decode_source(p, c.tile_kv);
  if (cluster_of(c, p, device) > 1) c = with_clusters(c, *dims);
  if (packed_rows(p) > kMostPacked && !alone && !is_sooner(c, f, p, device)) return std::nullopt;
  const bool counts = p.q.rows * p.group_size() < kMostTiles &&
                      count_tiles(c, p, kUnitTiles) < kMostTiles &&
                      part_slots(c, p, most_ctas(c, device)) * c.rows < kMostTiles;
  return counts ? std::optional(c) : std::nullopt;
}

bool can_append(const DecodeConfig& c, const Problem& p) {
  if (!p.appends()) return false;
  // Each sequence has queries, and as many new keys; one CTA reads a key of a KV head.
  const bool alike = !p.fresh.varlen && !p.q.varlen && !p.q.seqused && p.q.rows > 0;
  // More rows leave no registers for it.
  if (!alike || !c.ragged || !c.one_tile || c.wide || c.consumers > 1 || c.kv8) return false;
  // Tiles that no query sees are not visited.
  const int64_t queries = std::min(p.q.rows, p.fresh.rows);
  const int64_t before = p.fresh.rows - queries;  // new keys before the first query's
  const bool reaches = p.mask != FA3_MASK_WINDOW || p.left < 0 || p.left >= before;
  const bool all_seen = before == 0 || (reaches && p.attention_chunk == 0);
  // Pieces are whole, and lie at multiples of 16 bytes.
  const auto is_whole = [](const Layout& x) {
    constexpr int64_t kEight = 8;
    return (x.batch | x.row | x.head) % kEight == 0;
  };
  const Layout &cos = p.layout[kRotaryCos], &sin = p.layout[kRotarySin];
  const bool rotates = p.rotation.rotary_dim > 0;
  const bool whole_tables =
      !rotates || (cos.dtype == p.layout[kQ].dtype && is_whole(cos) && is_whole(sin));
  return all_seen && whole_tables && p.rotation.rotary_dim % 16 == 0 && is_whole(p.layout[kKNew]) &&
         is_whole(p.layout[kVNew]);
}

void set_cluster(DecodePlan& plan, const Problem& p, int64_t cluster) {
  plan.cluster = static_cast<uint32_t>(cluster);
  plan.heads_kv = static_cast<uint32_t>(p.heads_kv);
  plan.ctas = static_cast<uint32_t>(p.batch * cluster) * plan.heads_kv;
}

DecodePlans make_decode_plans(const DecodeConfig& config, const FwdPlan& forward, const Problem& p,
                              const DeviceInfo& device) {
  DecodePlans plans;
  DecodePlan& decode = plans.decode;
  decode.config = config;
  decode.forward = forward;
  decode.parts = part_grid(config, p);
  decode.ctas = static_cast<uint32_t>(std::min(most_ctas(config, device), count_tiles(config, p)));
  if (config.clusters) set_cluster(decode, p, cluster_of(config, p, device));
  decode.slots = part_slots(config, p, decode.ctas);
  CombinePlan& combine = plans.combine;
  combine.config = combine_of(config);
  combine.band = forward.band;
  combine.ctas = decode.ctas;
  combine.parts = decode.parts;
  combine.slots = decode.slots;
  combine.scale_log2 = forward.scale_log2;
  combine.rows = static_cast<uint32_t>(std::min<int64_t>(config.rows, packed_rows(p)));
  combine.row_tiles =
      static_cast<uint32_t>(std::max<int64_t>(div_up(packed_rows(p), config.rows), 1));
  combine.batch = p.batch, combine.heads_kv = p.heads_kv;
  return plans;
}

bool can_widen(const Problem& p) {
  if (p.layout[kK].dtype != FA3_F8_E4M3 || p.image.keys > 0) return false;
  const auto whole = [&](TensorId id) {
    const ScaleBlock& block = p.scale_block[id];
    return block.rows == 0 && block.cols == 0;
  };
  const bool offset = p.layout[kKOffset].present() || p.layout[kVOffset].present();
  return !offset && whole(kQ) && whole(kK) && whole(kV);
}
bool must_widen(const Problem& p) {
  const bool alone = p.cache.present() || p.has_tree() || p.has_max_logit();
  return p.has_8_bit_keys() && (!p.is_8_bit() || alone);
}
Problem of_16_bits(Problem p) {
  const fa3_dtype q = p.layout[kQ].dtype, o = p.layout[kO].dtype;
  const fa3_dtype of_16 = !is_8_bit(q) ? q : o == FA3_F32 ? FA3_BF16 : o;
  for (const TensorId id : {kQ, kK, kV}) {
    p.layout[id].dtype = of_16;
    p.layout[scale_of(id)] = {};
    p.scale_block[id] = {};
  }
  return p;
}

bool has_few_beside_many(const Problem& p) {
  if (must_widen(p)) return false;
  // With lengths that are nearly alike, a kernel more for what may not be there costs its launch.
  const bool differ = 2 * p.q.rows <= p.batch * most_rows(p.q);
  return p.cache.present() && p.q.varlen && p.batch > 1 && most_rows(p.q) > kFewQueries && differ;
}
Problem of_few_queries(Problem p) {
  p.q.max_seqlen = std::min(p.q.max_seqlen, kFewQueries);
  return p;
}

// ---- The decode kernel -------------------------------------------------------------------------

Program program_of(const DecodePlan& plan) {
  return {"device/sm90/decode/decode.cuh", decode_expression(plan.config), kHopperArch};
}

LaunchShape shape_of(const DecodePlan& plan) {
  LaunchShape shape;
  const DecodeConfig& c = plan.config;
  shape.cluster = plan.cluster;
  if (c.clusters) shape.grid[1] = plan.heads_kv;
  shape.grid[0] = plan.ctas / shape.grid[1];
  shape.threads = static_cast<u32>(c.threads());
  shape.smem_bytes = static_cast<u32>(c.smem_bytes());
  shape.pdl = true;
  shape.interacting = plan.forward.config.output.max_logit;
  return shape;
}

std::vector<Slice> writes(const DecodePlan& plan) {
  const DecodeConfig& c = plan.config;
  if (plan.slots == 0) return {};
  const size_t rows = static_cast<size_t>(plan.slots) * static_cast<size_t>(c.rows);
  return {{.name = kPartsOSlice,
           .bytes = rows * static_cast<size_t>(c.head_dim_v) * sizeof(float),
           .align = kCacheLine},
          {.name = kPartsLseSlice,
           .bytes = rows * (c.part_tiles > 0 ? 2 : 1) * sizeof(float),
           .align = kCacheLine}};
}

std::string name_of(const DecodePlan& plan) {
  const DecodeConfig& c = plan.config;
  return fmt::format("decode/d{}/rows{}{}{}/{}{}/{}{}{}/{}{}", head_dims_text(plan), c.rows,
                     c.wide ? "/wide" : "", tiles_text(c), word(c.dtype),
                     c.q8    ? "/qkv8"
                     : c.kv8 ? "/kv8"
                             : "",
                     word(c.score), c.alibi ? "/alibi" : "", c.o_f32 ? "/o_f32" : "",
                     placement_word(c),
                     c.clusters          ? "/clusters"
                     : c.ctas_per_sm > 1 ? "/two"
                                         : "");
}

std::string head_dims_text(const DecodePlan& plan) {
  const DecodeConfig& c = plan.config;
  if (c.head_dim_qk == c.head_dim_v) return std::to_string(c.head_dim_qk);
  return fmt::format("{}-{}", c.head_dim_qk, c.head_dim_v);
}

namespace {

// Parts of a unit: with lengths on the device one of them may be nearly the whole line.
int64_t most_splits(const DecodePlan& plan, const Problem& p) {
  if (plan.config.part_tiles > 0) return std::max(plan.parts.per_unit, 1u);
  if (plan.config.clusters) return plan.cluster;
  const int64_t ctas = plan.ctas, units = std::max<int64_t>(p.batch * p.heads_kv, 1);
  const int64_t most = has_lengths(p) ? ctas : std::min<int64_t>(ctas, div_up(ctas, units) + 1);
  return p.num_splits > 0 ? std::min<int64_t>(p.num_splits, most) : most;
}

// Why the kernel is used in place of a row.
void describe_choice(const DecodePlan& plan, const Problem& p, Json& json) {
  if (!plan.forward.declined.empty()) json["tuning_declined"] = plan.forward.declined;
  json["tuning_key"] = key_of(p);
  Json rejected = Json::object();
  for (const RejectedRow& row : rejected_rows(plan.forward.need, nullptr))
    rejected[row.name] = row.why;
  rejected[plan.forward.row] = "takes it, too, but reads each key once for every query head";
  json["rows_rejected"] = std::move(rejected);
}

}  // namespace

void describe(const DecodePlan& plan, const Problem& problem, Json& json) {
  const DecodeConfig& c = plan.config;
  const Problem p = plan.beside ? of_few_queries(problem) : problem;
  const int64_t tiles = count_tiles(c, p);
  const int64_t tile_bytes = c.k_tile().bytes() + c.v_tile().bytes();
  Json decode;
  decode["kernel"] = program_of(plan).expression;
  decode["row"] = kDecodeRow;
  decode["row_from"] = "table";
  if (!plan.beside) describe_choice(plan, p, decode);
  decode["rows"] = c.rows;
  decode["packed_rows"] = packed_rows(p);
  decode["tile_kv"] = c.tile_kv;
  if (c.part_tiles > 0) decode["part_keys"] = c.part_tiles * c.tile_kv;
  decode["stages"] = c.stages;
  decode["bytes_in_flight"] = c.stages * tile_bytes;
  decode["smem_bytes"] = c.smem_bytes();
  decode["consumers"] = c.consumers;
  decode["ctas"] = plan.ctas;
  decode["ctas_per_sm"] = c.ctas_per_sm;
  decode["cluster"] = plan.cluster;
  decode["kv_tiles_at_most"] = tiles;
  decode["bytes_per_cta_at_most"] = div_up(tiles, std::max<int64_t>(plan.ctas, 1)) * tile_bytes;
  decode["splits_at_most"] = most_splits(plan, p);
  json[plan.beside ? "sm90_few_queries" : "sm90"] = std::move(decode);
}

// ---- The kernel that merges --------------------------------------------------------------------

Program program_of(const CombinePlan& plan) {
  return {"device/sm90/decode/combine.cuh", combine_expression(plan.config), kHopperArch};
}

LaunchShape shape_of(const CombinePlan& plan) {
  LaunchShape shape;
  shape.grid[0] = plan.ctas;
  if (plan.by_unit()) {
    shape.grid[0] = static_cast<u32>(std::max<int64_t>(plan.batch * plan.row_tiles, 1));
    shape.grid[2] = static_cast<u32>(plan.heads_kv);
  }
  // With few parts of each a warp has a row, else a CTA. Where CTAs are many, each has several in
  // turn: there may be nothing to merge.
  constexpr int64_t kMostCtas = 1024;
  const int64_t units = std::max<int64_t>(plan.units(), 1);
  const bool few_parts =
      plan.config.part_tiles > 0 || plan.ctas / units <= CombineConfig::kFewParts;
  const int64_t of_unit = few_parts ? div_up(plan.rows, CombineConfig::kWarps) : plan.rows;
  const int64_t x = std::max<int64_t>(int64_t{shape.grid[0]} * shape.grid[2], 1);
  shape.grid[1] =
      static_cast<u32>(std::clamp<int64_t>(kMostCtas / x, 1, std::max<int64_t>(of_unit, 1)));
  shape.smem_bytes = static_cast<u32>(plan.config.smem_bytes());
  shape.threads = CombineConfig::kThreads;
  shape.pdl = true;
  return shape;
}

std::vector<const char*> reads(const CombinePlan&) { return {kPartsOSlice, kPartsLseSlice}; }

std::string name_of(const CombinePlan& plan) {
  const CombineConfig& c = plan.config;
  return fmt::format("combine/d{}/rows{}{}/{}{}/{}/tile{}", c.head_dim_v, c.rows, tiles_text(c),
                     word(c.dtype), c.o_f32 ? "/o_f32" : "", placement_word(c), c.tile_kv);
}

std::string head_dims_text(const CombinePlan& plan) {
  return std::to_string(plan.config.head_dim_v);
}

void describe(const CombinePlan& plan, const Problem&, Json& json) {
  json["combine"]["kernel"] = program_of(plan).expression;
}

}  // namespace fa3::sm90
