// SPDX-License-Identifier: BSD-3-Clause
// plan.h — how Hopper quantises a tensor: the kernels and their grids. Blocks of scales
// that a CTA holds take one pass over x; larger ones a pass for their maxima before; a mean one
// before that, which finds the maxima, too, where heads or the tensor have one scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/json.h"
#include "core/problem.h"
#include "core/status.h"
#include "device/sm90/quantize/args.h"
#include "device/sm90/quantize/config.h"
#include "plan/plan_kernel.h"
#include "runtime/program.h"

namespace fa3::sm90 {

enum class QuantizePass { kMeans, kMaxima, kCodes, kRotated };

// One of the kernels.
struct QuantizePlan : PlainKernel {
  QuantizePass pass = QuantizePass::kCodes;
  QuantizeConfig config;
  int row_blocks = 1;     // kRotated, RotatedConfig
  RotatedGrid rotated{};  // kRotated
  uint32_t grid[3] = {1, 1, 1};
  // Of the slices below.
  size_t maxima_bytes = 0;
  size_t counts_bytes = 0;
  size_t sums_bytes = 0;

  bool maxima_of_means = false;
};

// Slices that the kernels of a quantisation share: maxima; counts of sums, or of tiles taken; sums
// of columns.
inline constexpr const char* kMaximaSlice = "maxima";
inline constexpr const char* kCountsSlice = "counts";
inline constexpr const char* kSumsSlice = "sums";

inline RotatedConfig rotated_config(const QuantizePlan& plan) {
  return {plan.config, plan.row_blocks};
}

const char* pass_name(QuantizePass pass);  // "means", "maxima", "codes", "rotated"
bool is_of_codes(QuantizePass pass);       // its kernels differ by the codes, too

// In the order of their launches. UNSUPPORTED with the reason for what they do not do.
Result<std::vector<QuantizePlan>> make_quantize_plans(const Problem& problem,
                                                      const DeviceInfo& device);
// In two steps: the configuration of the codes' kernel; the plans with one that computes the same,
// perhaps without blocks of rows.
Result<QuantizeConfig> quantize_config(const Problem& problem);
Result<std::vector<QuantizePlan>> quantize_plans_of(const QuantizeConfig& config,
                                                    const Problem& problem,
                                                    const DeviceInfo& device);

// How many chunks of kSumRows rows a sequence may have.
int64_t quantize_chunks(const Problem& problem);

// See plan/plan_kernel.h.
Program program_of(const QuantizePlan& plan);
LaunchShape shape_of(const QuantizePlan& plan);
std::vector<Slice> writes(const QuantizePlan& plan);
std::string name_of(const QuantizePlan& plan);
std::string head_dims_text(const QuantizePlan& plan);
void describe(const QuantizePlan& plan, const Problem& problem, Json& json);

}  // namespace fa3::sm90
