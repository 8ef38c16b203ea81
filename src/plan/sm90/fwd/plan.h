// SPDX-License-Identifier: BSD-3-Clause
// plan.h — how the forward kernel of Hopper computes a problem: its configuration, grid and
// tile order. A pure function of problem and device.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/json.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/attn/tile_order.h"
#include "device/attn/tile_range.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/score_offset_config.h"
#include "device/sm90/fwd/v_image_config.h"
#include "plan/plan_kernel.h"
#include "plan/sm90/fwd/rows.h"
#include "plan/sm90/mask/bits_plan.h"
#include "plan/work.h"
#include "runtime/program.h"

namespace fa3::sm90 {

inline constexpr const char* kTileCounterSlice = "tile_counter";
inline constexpr const char* kPartOSlice = "part_o";

struct FwdPlan : PlainKernel {
  RowNeed need;          // what the row was chosen by
  const char* row = "";  // of fwd/configs.h
  bool tuned = false;    // the device's tuning names it
  std::string declined;  // "" or the row that the tuning names, and why it is not used
  FwdConfig config;
  FwdFunctors functors;
  Band32 band;  // of the mask, without bounds that no query reaches
  TileOrder order;
  uint32_t tiles = 0;      // Q tiles over batch and heads; varlen: at most
  uint32_t grid = 0;       // CTAs
  bool counter = false;    // CTAs take the next tile from a counter in the workspace
  float score_factor = 0;  // see FwdArgs
  float scale_log2 = 0;
  float slope_factor = 0;      // see ElementArgs
  bool makes_v_image = false;  // a kernel before transposes V, which is no argument
  bool score_offset = false;   // one makes FwdArgs::score_offset
  MaskShape mask;              // one makes bits of attn_mask, of this shape
  int64_t part_bytes = 0;      // of O of the parts so far, of all CTAs
  int64_t skips_queries = 0;   // sequences of up to so many are the decode kernel's
};

// Tiles of one head of 8-bit V that is transposed before: of all sequences, as VImage counts them.
int64_t v_image_tiles(const SeqAxis& axis, int64_t batch, int tile_kv);

// UNSUPPORTED where TMA cannot address K and V of 8 bits, or what goes with them.
Status check_layout_of_codes(const Problem& problem);

// How a row with tiles of so many keys gets K and V: of 16 keys, as every row.
KvSource fwd_source(const Problem& problem, int tile_kv);
// UNSUPPORTED with the reason for what the kernel does not do.
Result<FwdPlan> make_fwd_plan(const Problem& problem, const DeviceInfo& device);

// In two steps: the row, and what the problem adds to it at compile time; the plan with a
// configuration of that row that computes the variant.
struct FwdChoice {
  FwdPlan plan;  // without a configuration
  const FwdRow* row = nullptr;
  FwdVariant variant;
};
Result<FwdChoice> choose_fwd(const Problem& problem, const DeviceInfo& device);
Result<FwdPlan> fwd_plan_of(const FwdChoice& choice, const FwdConfig& config,
                            const Problem& problem, const DeviceInfo& device);

// The plan with another configuration, and what follows from it: tiles, tiles per head, grid,
// counter.
FwdPlan with_config(FwdPlan plan, const FwdConfig& config, const Problem& problem,
                    int multiprocessors);

// The plan with the kernel of the row's own head dims; nothing where it has them already. It
// computes the same, more slowly: TMA fills what the tensors lack with zeros and clips the store.
// Grid and order stay.
std::optional<FwdPlan> wider(const FwdPlan& plan);

inline bool tuned(const FwdPlan& plan) { return plan.tuned; }
inline const std::string& declined(const FwdPlan& plan) { return plan.declined; }

// See plan/plan_kernel.h; name_of and head_dims_text: fwd/kernels.h; describe: fwd/explain.h.
Program program_of(const FwdPlan& plan);
LaunchShape shape_of(const FwdPlan& plan);
std::vector<Slice> writes(const FwdPlan& plan);
std::vector<const char*> reads(const FwdPlan& plan);
ImageTile image_of(const FwdPlan& plan);
std::string name_of(const FwdPlan& plan);
std::string head_dims_text(const FwdPlan& plan);
void describe(const FwdPlan& plan, const Problem& problem, Json& json);
void describe_estimate(const FwdPlan& plan, const Problem& problem, const Work& work, Json& json);

// The kernel as C++ names it: fa3::sm90::fwd<fa3::sm90::FwdConfig{.types = {.qk = …}, …}>, every
// field by its name, and the types of functors where there are any.
std::string fwd_expression(const FwdConfig& config, const FwdFunctors& functors = {});
std::string v_image_expression(const VImageConfig& config);
std::string score_offset_expression(const ScoreOffsetConfig& config);
const char* fwd_header(const FwdConfig& config);  // the header that declares it

}  // namespace fa3::sm90
