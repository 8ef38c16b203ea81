// SPDX-License-Identifier: BSD-3-Clause
// config.h — one variant of the kernels that read attn_mask before attention does, as a value.
#pragma once

#include "device/attn/kinds.h"
#include "device/types.h"

namespace fa3::sm90 {

struct MaskBitsConfig {
  static constexpr int kThreads = 1024;
  static constexpr int kTiles = 32;  // KV tiles of a CTA: a word of MaskTiles
  static constexpr int kSmemBytes = kThreads / 32 * kTiles * 4;

  MaskTensor type = MaskTensor::kBool;
  bool bf16 = false;                // elements of 16 bits, else F16
  int tile_q = 128, tile_kv = 128;  // of the attention kernel; tile_kv: a multiple of 32

  constexpr bool operator==(const MaskBitsConfig&) const = default;
};

// Of the kernel that puts it in the order of registers (mask_image.cuh).
struct MaskImageConfig {
  static constexpr int kThreads = 256;

  MaskTensor type = MaskTensor::kF32;  // kF32 or k16
  bool bf16 = false;                   // elements of 16 bits, else F16

  constexpr bool operator==(const MaskImageConfig&) const = default;
};

}  // namespace fa3::sm90
