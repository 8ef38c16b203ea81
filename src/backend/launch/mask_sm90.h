// SPDX-License-Identifier: BSD-3-Clause
// mask_sm90.h — attn_mask for kernels: the one that reads it first, and what it leaves to the
// others.
#pragma once

#include <optional>

#include "core/problem.h"
#include "device/warp/mask_image.h"
#include "device/warp/mask_tensor.h"
#include "plan/plan.h"
#include "runtime/gpu_runtime.h"

namespace fa3::sm90 {

// at: of the shape's bytes in the workspace.
MaskTensorArgs mask_of(const Problem& problem, const Buffers& buffers, const MaskShape& shape,
                       std::byte* at);

// The mask's elements in boxes of a panel of the tile; nothing where all rows or keys are alike, or
// addresses and strides are none that TMA takes.
std::optional<TensorMapSpec> map_of_mask(void* values, const Problem& problem,
                                         const TileLayout& tile);

// From batch entry `first` on.
MaskImageView image_of(const MaskImageShape& shape, const std::byte* at, int64_t first);

inline Status check_addresses(const MaskImagePlan&, const Problem&, const Buffers&) {
  return {};  // elements may lie anywhere
}
inline Status check_addresses(const MaskBitsPlan&, const Problem&, const Buffers&) {
  return {};  // likewise
}
Status launch(const MaskImagePlan& plan, const KernelStep& step, GpuRuntime& runtime,
              StreamRef stream, const Problem& problem, const Buffers& buffers,
              std::byte* workspace);
Status launch(const MaskBitsPlan& plan, const KernelStep& step, GpuRuntime& runtime,
              StreamRef stream, const Problem& problem, const Buffers& buffers,
              std::byte* workspace);

}  // namespace fa3::sm90
