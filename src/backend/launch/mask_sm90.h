// SPDX-License-Identifier: BSD-3-Clause
// mask_sm90.h — attn_mask for kernels: the one that reads it first, and what it leaves to the
// others.
#pragma once

#include <optional>

#include "backend/launch/step_run.h"
#include "core/problem.h"
#include "device/warp/mask_image.h"
#include "device/warp/mask_tensor.h"

namespace fa3::sm90 {

// With the bits and tiles that the run's step uses.
MaskTensorArgs mask_of(const StepRun& run, const MaskShape& shape);

// The mask's elements in boxes of a panel of the tile; nothing where all rows or keys are alike, or
// addresses and strides are none that TMA takes.
std::optional<TensorMapSpec> map_of_mask(void* values, const Problem& problem,
                                         const TileLayout& tile);

// Of an image at that address, from batch entry `first` on.
MaskImageView image_of(const MaskImageShape& shape, const std::byte* at, int64_t first);

Status launch(const MaskImagePlan& plan, const StepRun& run);
Status launch(const MaskBitsPlan& plan, const StepRun& run);

}  // namespace fa3::sm90
