// SPDX-License-Identifier: BSD-3-Clause
// tensor_map.h — a GPU's tensor map, made by the driver.
#pragma once

#include "backend/cuda/driver.h"
#include "core/status.h"
#include "device/tensor_map.h"

namespace fa3::cuda {

// INVALID_ARGUMENT as by check_tensor_map; CUDA_ERROR with every field when the driver refuses.
Result<TensorMap> encode_tensor_map(const Driver& driver, const TensorMapSpec& spec);

}  // namespace fa3::cuda
