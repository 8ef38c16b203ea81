// SPDX-License-Identifier: BSD-3-Clause
// mask_image.h — elements of an attn_mask that is added, in the order of the backward's registers:
// scores lie transposed there, a key a row.
#pragma once

#include "device/ptx/memory.h"
#include "device/types.h"
#include "device/warp/fragment.h"
#include "device/warp/mask_tensor.h"

namespace fa3 {

// A block: 64 queries and 64 keys of a consumer, which thread t holds by fours, registers 4j …
// 4j + 3 of its scores of queries 8j …: four j · 128 + t.
inline constexpr i32 kMaskImageRows = 64;
inline constexpr u32 kMaskImageFours = kMaskImageRows / 8 * 128;

// Of a block, whether each warp that has made it has found an element that shows its key.
using MaskImageShown = ptx::Vec<u32, 2>;

// Strides in blocks; 0 in dimensions in which the mask is the same for all.
struct MaskImageView {
  const void* data;
  const MaskImageShown* shown;
  i64 batch, head, q_block;
  i32 kv_block;

  FA3_DEV i64 block(i32 b, i32 h, i32 q, i32 kv) const {
    return b * batch + h * head + q * q_block + i64{kv} * kv_block;
  }
  FA3_DEV bool shows(i32 b, i32 h, i32 q, i32 kv) const {
    const MaskImageShown found = ptx::ld_global(shown + block(b, h, q, kv));
    return (found[0] | found[1]) != 0;
  }
};

// Of a block, by a thread of the consumer.
template <class Element>
struct MaskImageBlock {
  using Four = ptx::Vec<typename Element::Type, 4>;
  const Four* at;

  FA3_DEV static MaskImageBlock of(const MaskImageView& image, i32 batch, i32 head, i32 q_block,
                                   i32 kv_block, u32 thread) {
    const i64 first = image.block(batch, head, q_block, kv_block) * kMaskImageFours;
    return {static_cast<const Four*>(image.data) + first + thread};
  }
  FA3_DEV Four load(int j) const { return ptx::ld_global(at + j * 128); }
};

}  // namespace fa3
