// SPDX-License-Identifier: BSD-3-Clause
// args.h — what a launch of the kernel that reads attn_mask before attention does takes.
#pragma once

#include "device/warp/mask_image.h"
#include "device/warp/mask_tensor.h"

namespace fa3::sm90 {

// Extents: 1 block, 64 rows, 64 keys where the mask is the same for all.
struct MaskImageArgs {
  MaskTensorArgs mask;
  void* image;
  MaskImageShown* shown;  // of each block
  i32 heads, rows, keys;
  i32 q_blocks, kv_blocks;  // of kMaskImageRows
};

struct MaskBitsArgs {
  MaskTensorArgs mask;  // whose bits and tiles are written
  // Extents: 1 where the mask is the same for all; keys likewise 32.
  i32 heads, rows, keys;
  i32 q_tiles, groups;  // Q tiles of the rows; groups of 32 KV tiles of the keys
};

}  // namespace fa3::sm90
