// SPDX-License-Identifier: BSD-3-Clause
// dtype.h — sizes and names of element types.
#pragma once

#include <cstdint>

#include "fa3/fa3.h"

namespace fa3 {

// 0 for what is no dtype.
constexpr int64_t dtype_bytes(int32_t dtype) {
  switch (dtype) {
    case FA3_F32:
    case FA3_I32:
      return 4;
    case FA3_F16:
    case FA3_BF16:
      return 2;
    case FA3_F8_E4M3:
    case FA3_F8_E5M2:
      return 1;
    default:
      return 0;
  }
}

constexpr const char* dtype_name(int32_t dtype) {
  switch (dtype) {
    case FA3_DTYPE_NONE:
      return "none";
    case FA3_F32:
      return "f32";
    case FA3_F16:
      return "f16";
    case FA3_BF16:
      return "bf16";
    case FA3_I32:
      return "i32";
    case FA3_F8_E4M3:
      return "f8_e4m3";
    case FA3_F8_E5M2:
      return "f8_e5m2";
    default:
      return "unknown";
  }
}

constexpr bool is_f8(int32_t dtype) { return dtype == FA3_F8_E4M3 || dtype == FA3_F8_E5M2; }

}  // namespace fa3
