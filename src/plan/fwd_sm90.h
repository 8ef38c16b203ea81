// SPDX-License-Identifier: BSD-3-Clause
// fwd_sm90.h — how the forward kernel of Hopper computes a problem: its configuration, grid and
// order of tiles. A pure function of problem and device.
#pragma once

#include <string>

#include "core/device.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/attn/tile_order.h"
#include "device/attn/tile_range.h"
#include "device/fwd_config.h"
#include "plan/fwd_rows.h"

namespace fa3 {

struct FwdSm90Plan {
  RowNeed need;          // what the row was chosen by
  const char* row = "";  // of configs_sm90.h
  FwdConfig config;      // set by configure()
  std::string kernel;    // fwd_expression(config)
  Band32 band;           // of the mask, without bounds that no query reaches
  TileOrder order;
  uint32_t tiles = 0;      // Q tiles over batch and heads; packed: at most. Whole clusters
  uint32_t grid = 0;       // CTAs
  float score_factor = 0;  // see FwdArgs
  float scale_log2 = 0;
};

// UNSUPPORTED with the reason for what the kernel does not do.
Result<FwdSm90Plan> make_fwd_sm90_plan(const Problem& problem, const DeviceInfo& device);

// Gives a plan another configuration, and what follows from it: the kernel's name, tiles, tiles per
// head, grid.
void configure(FwdSm90Plan& plan, const FwdConfig& config, const Problem& problem,
               int multiprocessors);

// Puts the kernel of the row's own head dims into a plan; false when that is what it has. It
// computes the same, more slowly: TMA fills with zeros, and clips, what the tensors lack. Grid and
// order stay.
bool widen(FwdSm90Plan& plan);

// The configuration that stands for another in the simulator, where each one was compiled ahead:
// fewer of them, each of which does more. The head dims are those of the row; FP16 under a mask or
// ragged, softcap and negative scales come with the widest mask and ragged tensors.
FwdConfig simulated(FwdConfig config);

// Lengths of sequences are data: packed, or with seqused.
bool has_lengths(const Problem& problem);

// How a ragged kernel addresses tensors without cu_seqlens: by rows over all sequences. The stride
// of a row in elements (that of a sequence when each has one row), and rows from one sequence's
// first to the next one's; by sequences, 1, where all lengths are equal.
int64_t ragged_row_stride(const SeqAxis& axis, const Layout& layout);
int64_t ragged_batch_rows(const Problem& problem, const SeqAxis& axis, const Layout& layout);

// Bytes of workspace: the counter of the dynamic schedule.
size_t fwd_sm90_workspace_bytes(const FwdSm90Plan& plan);

// The kernel as C++ names it: fa3::fwd_sm90<fa3::FwdConfig{.dtype = …}>, every field by its name.
std::string fwd_expression(const FwdConfig& config);
const char* fwd_header(const FwdConfig& config);  // that declares it

}  // namespace fa3
