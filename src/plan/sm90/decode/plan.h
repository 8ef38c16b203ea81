// SPDX-License-Identifier: BSD-3-Clause
// plan.h — the kernels of a forward with few queries: one that divides the keys evenly between all
// SMs, and one that merges what they have in common; or one whose clusters merge.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/json.h"
#include "device/attn/mask.h"
#include "device/sm90/decode/config.h"
#include "plan/plan_kernel.h"
#include "plan/sm90/fwd/plan.h"

namespace fa3::sm90 {

inline constexpr const char* kPartsOSlice = "parts_o";
inline constexpr const char* kPartsLseSlice = "parts_lse";

// Parts of a fixed number of keys: tiles of packed rows of a sequence, and parts of each, at most.
struct PartGrid {
  uint32_t row_tiles = 0, per_unit = 0;
};

struct DecodePlan : PlainKernel {
  DecodeConfig config;
  FwdPlan forward;  // of the forward's kernel, whose place it takes: mask, factors of scores
  uint32_t ctas = 0;
  uint32_t cluster = 1, heads_kv = 1;  // CTAs of a unit's cluster, and units of a sequence
  bool beside = false;  // sequences of more than kFewQueries queries are the forward's
  PartGrid parts;
  int64_t slots = 0;  // of parts that are merged, each of a tile of rows
};

struct CombinePlan : PlainKernel {
  CombineConfig config;
  Band32 band;
  uint32_t ctas = 0;       // of the decode kernel
  uint32_t rows = 0;       // packed rows of a tile that there are at most
  uint32_t row_tiles = 0;  // of a sequence, at most
  int64_t batch = 0, heads_kv = 0;
  bool beside = false;
  PartGrid parts;
  int64_t slots = 0;     // of the decode kernel
  float scale_log2 = 0;  // of exponents

  // Whether there may be anything to merge.
  bool merges() const { return slots > 0; }

  // What CTAs may share, at most.
  int64_t units() const { return batch * row_tiles * heads_kv; }
  // Whether a CTA merges a unit; else what a CTA of the decode kernel has begun.
  bool by_unit() const { return config.part_tiles > 0 || units() <= ctas; }
};

// A call of varlen queries from a cache may hold prompts and single tokens. The forward's kernel
// then takes the sequences of more than kFewQueries queries, and these kernels the others.
inline constexpr int64_t kFewQueries = 4;
bool has_few_beside_many(const Problem& problem);
// The problem as it would be of the others alone.
Problem of_few_queries(Problem problem);

struct DecodePlans {
  DecodePlan decode;
  CombinePlan combine;
};

// K and V of F8_E4M3 whose scales belong to heads of sequences come to the tensor cores as F16, and
// so does Q. The kernel computes nothing else of 8 bits.
bool can_widen(const Problem& problem);
// Whether no kernel but that takes it: Q has other bits, keys lie in a cache, or there is a tree.
bool must_widen(const Problem& problem);
// The problem as it would be if all that has 8 bits had 16.
Problem of_16_bits(Problem problem);

// The configuration for a problem that the forward's plan takes; nothing where the forward's own
// kernel is the better one, or the only one.
// How K and V are loaded in tiles of so many keys.
KvSource decode_source(const Problem& problem, int tile_kv);
std::optional<DecodeConfig> decode_config(const FwdPlan& forward, const Problem& problem,
                                          const DeviceInfo& device);
// Whether the kernel can write what the problem appends, and rotate, so that no kernel need do that
// before.
bool can_append(const DecodeConfig& config, const Problem& problem);
// Gives each unit of a plan with clusters so many CTAs.
void set_cluster(DecodePlan& plan, const Problem& problem, int64_t cluster);
DecodePlans make_decode_plans(const DecodeConfig& config, const FwdPlan& forward,
                              const Problem& problem, const DeviceInfo& device);

// A tuning that names a row of the forward, which cannot compute the problem.
inline const std::string& declined(const DecodePlan& plan) { return plan.forward.declined; }

// See plan/plan_kernel.h.
Program program_of(const DecodePlan& plan);
LaunchShape shape_of(const DecodePlan& plan);
std::vector<Slice> writes(const DecodePlan& plan);
std::string name_of(const DecodePlan& plan);
std::string head_dims_text(const DecodePlan& plan);
void describe(const DecodePlan& plan, const Problem& problem, Json& json);

Program program_of(const CombinePlan& plan);
LaunchShape shape_of(const CombinePlan& plan);
std::vector<const char*> reads(const CombinePlan& plan);
std::string name_of(const CombinePlan& plan);
std::string head_dims_text(const CombinePlan& plan);
void describe(const CombinePlan& plan, const Problem& problem, Json& json);

// The kernels as C++ names them.
std::string decode_expression(const DecodeConfig& config);
std::string combine_expression(const CombineConfig& config);

}  // namespace fa3::sm90
