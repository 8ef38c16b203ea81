// SPDX-License-Identifier: BSD-3-Clause
// mma_types.h — operand types of wgmma and the description of one instruction of the family.
#pragma once

#include "device/types.h"

namespace fa3 {

enum class MmaType : u8 { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8 };
enum class AccType : u8 { kF32, kF16, kS32 };

FA3_HD constexpr int size_of(MmaType type) {
  return type == MmaType::kTf32 ? 4 : type == MmaType::kF16 || type == MmaType::kBf16 ? 2 : 1;
}
FA3_HD constexpr bool is_fp8(MmaType type) {
  return type == MmaType::kE4m3 || type == MmaType::kE5m2;
}
FA3_HD constexpr bool is_int8(MmaType type) { return type == MmaType::kS8 || type == MmaType::kU8; }

// Columns that D may have: multiples of 8 up to 256; from 32 on of 16 for 8-bit integers
// (PTX ISA 9.7.15.2).
FA3_HD constexpr bool wgmma_has_columns(MmaType type, int n) {
  return n >= 8 && n <= 256 && n % 8 == 0 && (!is_int8(type) || n <= 32 || n % 16 == 0);
}
// Operand types that go together: equal ones, or both FP8, or both 8-bit integers.
FA3_HD constexpr bool wgmma_has_types(MmaType a, MmaType b) {
  return a == b || (is_fp8(a) && is_fp8(b)) || (is_int8(a) && is_int8(b));
}

// One instruction of the family; every lane passes the same object.
struct WgmmaInstruction {
  MmaType a, b;
  AccType d;
  int n;  // columns of D
  bool a_in_registers;
  bool a_transposed, b_transposed;  // MN-major, 16-bit types only

  FA3_HD constexpr int element_bytes() const { return size_of(a); }
  FA3_HD constexpr int k() const { return 32 / element_bytes(); }
};

}  // namespace fa3
