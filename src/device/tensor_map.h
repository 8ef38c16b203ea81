// SPDX-License-Identifier: BSD-3-Clause
// tensor_map.h — the 128-byte object that describes a tensor to TMA, and the fields it is made
// from. A GPU's comes from the driver (backend/cuda/tensor_map.cpp), the simulator's from
// sim/tensor_map.cpp; core/tensor_map.h holds the one validation of both.
#pragma once

#include "device/types.h"

namespace fa3 {

// Bits that only the target that encoded them can read. Passed inside a kernel's argument struct.
struct alignas(128) TensorMap {
  u64 opaque[16];
};

// Element types that matter to TMA: size, and how reduce-add adds.
enum class TmaType : u8 { kU8, kU16, kU32, kI32, kU64, kF16, kBf16, kF32 };

FA3_HD constexpr int size_of(TmaType type) {
  switch (type) {
    case TmaType::kU8:
      return 1;
    case TmaType::kU16:
    case TmaType::kF16:
    case TmaType::kBf16:
      return 2;
    case TmaType::kU32:
    case TmaType::kI32:
    case TmaType::kF32:
      return 4;
    case TmaType::kU64:
      return 8;
  }
  return 0;
}

// Width of the XOR pattern on shared-memory addresses, in bytes; 0 = none.
enum class Swizzle : u8 { kNone = 0, k32 = 32, k64 = 64, k128 = 128 };

// What a tensor map says. Index 0 is the innermost dimension, whose stride is one element.
struct TensorMapSpec {
  static constexpr int kMaxRank = 5;
  const char* name = "tensor";  // for messages
  void* base = nullptr;         // 16-byte aligned
  TmaType type = TmaType::kBf16;
  int rank = 0;                     // 1…5
  u64 dim[kMaxRank] = {};           // elements, 1…2^32
  u64 stride_bytes[kMaxRank] = {};  // of dimensions 1…rank−1 (entry 0 is not read); multiple of 16
  u32 box[kMaxRank] = {};           // elements of one copy, 1…256
  u32 element_stride[kMaxRank] = {1, 1, 1, 1, 1};  // 1…8
  Swizzle swizzle = Swizzle::kNone;
  bool nan_fill = false;  // out-of-range elements read as NaN instead of 0; floats only
};

}  // namespace fa3
