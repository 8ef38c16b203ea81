// SPDX-License-Identifier: BSD-3-Clause
// float_types.h — element types of tensors as the kernels' configurations name them.
#pragma once

#include "device/sm90/common/float_type.h"
#include "fa3/fa3.h"

namespace fa3::sm90 {

// Of F32, F16 or BF16.
inline FloatType float_type_of(fa3_dtype dtype) {
  return dtype == FA3_F32 ? FloatType::kF32 : dtype == FA3_F16 ? FloatType::kF16 : FloatType::kBf16;
}

constexpr const char* word(FloatType type) {
  return type == FloatType::kF32 ? "f32" : type == FloatType::kF16 ? "f16" : "bf16";
}
constexpr const char* enumerator_of(FloatType type) {
  return type == FloatType::kF32 ? "kF32" : type == FloatType::kF16 ? "kF16" : "kBf16";
}

}  // namespace fa3::sm90
