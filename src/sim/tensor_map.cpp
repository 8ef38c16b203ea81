// SPDX-License-Identifier: BSD-3-Clause
// tensor_map.cpp — encoding, behind the one validation.
#include "sim/tensor_map.h"

#include <cstring>

#include "core/tensor_map.h"

namespace fa3::sim {

Result<TensorMap> encode_tensor_map(const TensorMapSpec& spec) {
  FA3_RETURN_IF_ERROR(check_tensor_map(spec));
  SimTensorMap map{};
  map.magic = SimTensorMap::kMagic;
  map.base = reinterpret_cast<u64>(spec.base);
  map.type = spec.type;
  map.rank = static_cast<u8>(spec.rank);
  map.swizzle = spec.swizzle;
  map.nan_fill = spec.nan_fill;
  for (int i = 0; i < spec.rank; i++) {
    map.last[i] = static_cast<u32>(spec.dim[i] - 1);
    map.stride_bytes[i] = i == 0 ? static_cast<u64>(size_of(spec.type)) : spec.stride_bytes[i];
    map.box[i] = static_cast<u16>(spec.box[i]);
    map.element_stride[i] = static_cast<u8>(i == 0 ? 1 : spec.element_stride[i]);
  }
  TensorMap out{};
  std::memcpy(&out, &map, sizeof map);
  return out;
}

}  // namespace fa3::sim
