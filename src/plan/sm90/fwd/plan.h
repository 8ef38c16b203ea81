// SPDX-License-Identifier: BSD-3-Clause
// plan.h — how the forward kernel of Hopper computes a problem: its configuration, grid and
// tile order. A pure function of problem and device.
#pragma once

#include <optional>
#include <string>

#include "core/device.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/attn/tile_order.h"
#include "device/attn/tile_range.h"
#include "device/sm90/fwd/config.h"
#include "device/sm90/fwd/score_offset_config.h"
#include "device/sm90/fwd/v_image_config.h"
#include "plan/sm90/fwd/rows.h"
#include "plan/sm90/mask/bits_plan.h"
#include "runtime/program.h"

namespace fa3::sm90 {

// Where tiles of 8-bit V that is transposed before begin in the forward's part of the workspace,
// behind the counter.
inline constexpr size_t kVImageOffset = 128;

struct FwdPlan {
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
  float slope_factor = 0;  // see ElementArgs
  // Of the workspace, behind kVImageOffset; 0: none, or an argument.
  size_t v_image_bytes = 0;
  size_t score_offset_bytes = 0;  // of FwdArgs::score_offset, behind that; 0: none
  MaskShape mask;                 // of FwdArgs::mask's bits and tiles, behind that

  size_t score_offset_at() const { return kVImageOffset + (v_image_bytes + 15) / 16 * 16; }
  size_t mask_at() const { return score_offset_at() + (score_offset_bytes + 15) / 16 * 16; }
};

// Tiles of one head of 8-bit V that is transposed before: of all sequences, as VImage counts them.
int64_t v_image_tiles(const SeqAxis& axis, int64_t batch, int tile_kv);

// Is the image one that the kernel's plan has to make?
inline bool makes_v_image(const FwdPlan& plan, const Problem& problem) {
  return plan.config.v_image && problem.image.keys == 0;
}

// Does FwdArgs::score_offset matter: is there a k_offset, and what notices it?
bool needs_score_offset(const Problem& problem);

// UNSUPPORTED with the reason for what the kernel does not do.
Result<FwdPlan> make_fwd_plan(const Problem& problem, const DeviceInfo& device);

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

// What a step of a plan (plan/plan.h) needs from a kernel.
Program program_of(const FwdPlan& plan);
LaunchShape shape_of(const FwdPlan& plan);
size_t workspace_bytes(const FwdPlan& plan);
size_t zeroed_bytes(const FwdPlan& plan);

// The kernel as C++ names it: fa3::sm90::fwd<fa3::sm90::FwdConfig{.dtype = …}>, every field by its
// name, and the types of functors where there are any.
std::string fwd_expression(const FwdConfig& config, const FwdFunctors& functors = {});
std::string v_image_expression(const VImageConfig& config);
std::string score_offset_expression(const ScoreOffsetConfig& config);
const char* fwd_header(const FwdConfig& config);  // the header that declares it

}  // namespace fa3::sm90
