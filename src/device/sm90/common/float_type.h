// SPDX-License-Identifier: BSD-3-Clause
// float_type.h — the types of elements that kernels without GEMMs read and write.
#pragma once

#include "device/types.h"

namespace fa3::sm90 {

enum class FloatType : u8 { kF32, kF16, kBf16 };
FA3_HD constexpr int size_of(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }

}  // namespace fa3::sm90
