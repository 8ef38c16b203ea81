// SPDX-License-Identifier: BSD-3-Clause
// plan.h — the backward on Hopper: a kernel before and one behind the main one take rows of
// queries, the main one tiles of keys. Deterministic, one more before them takes rows of keys; for
// dattn_mask one more takes its tiles, for dsinks one more the rows of a head.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/json.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/sm90/bwd/config.h"
#include "plan/plan_kernel.h"
#include "plan/sm90/mask/bits_plan.h"
#include "plan/sm90/mask/image_plan.h"
#include "plan/work.h"
#include "runtime/program.h"

namespace fa3::sm90 {

struct BwdRow;  // bwd/configs.h

enum class BwdPass { kBound, kDelta, kMain, kDq, kMaskGradient, kSinks };  // kBound: deterministic
const char* word(BwdPass pass);

// One of the kernels.
struct BwdPlan : PlainKernel {
  BwdPass pass = BwdPass::kMain;
  const char* row = "";  // of bwd/configs.h
  bool tuned = false;    // a tuning names the row; else why its row was not taken, or ""
  std::string declined;
  BwdConfig config;
  BwdConfig gradient;  // of dattn_mask's kernel
  uint32_t grid[3] = {1, 1, 1};
  uint32_t section_log2 = 0;  // of the KV heads of a section (device/sm90/bwd/work.h)
  bool visits = false;        // some query may see some key: else dK and dV are 0
  int64_t tiles = 0;          // of queries, of all heads and sequences
  bool sums_dq = true;        // else nobody wants dQ
  bool stores_dq = false;     // a head has one KV tile, which visits all Q tiles
  int64_t heads = 0;          // of keys, of all sequences
  // From that of a CTA to that whose sums it sets to 0 (dq_zeros.h); 0: bwd_delta sets all.
  int64_t zero_ahead = 0;
  int64_t first_sequence = 0, sequences = 0;  // of this launch
  int64_t bound_entries = 0;                  // of a KV head of a sequence
  int64_t bounds = 0;                         // of all
  MaskShape mask;                             // with attn_mask of bool
  MaskImageShape image;                       // with one that is added

  // Bytes of the slices below.
  size_t stats_bytes() const;
  size_t sums_bytes() const;
  size_t flags_bytes() const;
  size_t bounds_bytes() const;
  size_t zero_counts_bytes() const;
  size_t coarse_rows_bytes() const;
};

// Slices that the kernels share: LSE, δ …; dQ's sums, and the bits of +∞, −∞ and NaN in them;
// bounds of K and V; counts of what is set to 0; what CoarseRowArgs points to.
inline constexpr const char* kStatsSlice = "stats";
inline constexpr const char* kDqSumsSlice = "dq_sums";
inline constexpr const char* kDqFlagsSlice = "dq_flags";
inline constexpr const char* kBoundsSlice = "bounds";
inline constexpr const char* kZeroCountsSlice = "zero_counts";
inline constexpr const char* kCoarseRowsSlice = "coarse_rows";

// In the order of their launches. UNSUPPORTED with the reason for what they do not do.
Result<std::vector<BwdPlan>> make_bwd_plans(const Problem& problem, const DeviceInfo& device);

// In two steps: the row, and its configuration with what the problem adds at compile time; the
// plans of a configuration that computes that, and of that of dattn_mask's kernel.
struct BwdChoice {
  const BwdRow* row = nullptr;
  bool tuned = false;
  std::string declined;
  BwdConfig config;
};
inline constexpr int64_t kMostBwdSequences = 65535;  // of a launch: a grid has no more
Result<BwdChoice> choose_bwd(const Problem& problem, const DeviceInfo& device);
Result<std::vector<BwdPlan>> bwd_plans_of(const BwdConfig& config, const BwdConfig& gradient,
                                          const Problem& problem, const DeviceInfo& device,
                                          int64_t most_sequences = kMostBwdSequences);
std::vector<BwdPlan> with_choice(std::vector<BwdPlan> plans, const BwdChoice& choice);

// Whether the main kernel of the row can set dQ's sums to 0.
bool can_set_zeros(BwdConfig config, const BwdRow& row);

// The rows of the table but `used`, in their order.
struct RejectedBwdRow {
  const char* name;
  std::string why;
};
std::vector<RejectedBwdRow> rejected_bwd_rows(const Problem& problem, std::string_view used);

// The kernels that make dattn_mask beside a main kernel: of its head dims and of fewer columns.
std::vector<BwdConfig> mask_gradients_of(const BwdConfig& main);

// Tiles of queries of one head: of all sequences, as BwdTiles counts them.
int64_t bwd_q_tiles(const Problem& problem, int tile_q);

// See plan/plan_kernel.h.
Program program_of(const BwdPlan& plan);
LaunchShape shape_of(const BwdPlan& plan);
std::vector<Slice> writes(const BwdPlan& plan);
std::vector<const char*> reads(const BwdPlan& plan);
std::string name_of(const BwdPlan& plan);
std::string head_dims_text(const BwdPlan& plan);
inline bool tuned(const BwdPlan& plan) { return plan.tuned; }
inline std::string declined(const BwdPlan& plan) { return plan.declined; }
// bwd/explain.cpp: the row, the rejected rows and why, configuration, grid, workspace by its parts;
// and what the roofline says.
void describe(const BwdPlan& plan, const Problem& problem, Json& json);
void describe_estimate(const BwdPlan& plan, const Problem& problem, const Work& work, Json& json);

}  // namespace fa3::sm90
