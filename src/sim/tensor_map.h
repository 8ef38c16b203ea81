// SPDX-License-Identifier: BSD-3-Clause
// tensor_map.h — the simulator's own encoding of a tensor map in the 128 bytes that a GPU's takes.
#pragma once

#include "core/status.h"
#include "device/tensor_map.h"

namespace fa3::sim {

struct SimTensorMap {
  static constexpr u64 kMagic = 0x70616D2D6D697366;  // a GPU's map has other bits here
  u64 magic;
  u64 base;
  u64 stride_bytes[5];  // [0] is the element
  u32 last[5];          // dimension − 1
  u16 box[5];
  u8 element_stride[5];
  TmaType type;
  u8 rank;
  Swizzle swizzle;
  bool nan_fill;
};
static_assert(sizeof(SimTensorMap) <= sizeof(TensorMap));

// INVALID_ARGUMENT for a spec that breaks a rule of TMA.
Result<TensorMap> encode_tensor_map(const TensorMapSpec& spec);

}  // namespace fa3::sim
