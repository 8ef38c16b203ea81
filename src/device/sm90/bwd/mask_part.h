// SPDX-License-Identifier: BSD-3-Clause
// mask_part.h — attn_mask as a consumer of the backward reads it: elements that are added, in the
// order of its registers, or bits.
#pragma once

#include "device/sm90/bwd/args.h"
#include "device/warp/fragment.h"
#include "device/warp/mask_image.h"

namespace fa3::sm90 {

// Of which scores; the tile's first key.
struct MaskPlace {
  i32 batch, head, key;
};

// Of the thread's two keys and two queries of 8: registers 4j … 4j + 3 of its scores.
template <BwdConfig kCfg>
struct BwdMaskPart {
  using Element = MaskElement<kCfg.attn_mask, kCfg.dtype == MmaType::kBf16>;
  ptx::Vec<typename Element::Type, 4> added;
  u32 shown[2];  // of each query; bit 0: the first key; bit 8: the other

  FA3_DEV bool sees(int i) const {
    if constexpr (kCfg.adds_mask()) return !(value(i) == -kInf);
    return (shown[i % 2] >> (i / 2 * 8) & 1) != 0;
  }
  FA3_DEV float value(int i) const {
    if constexpr (kCfg.adds_mask()) return Element::value(added[i]);
    return 0;
  }

  // wg, thread: the consumer's and its own; tile: of queries.
  FA3_DEV static BwdMaskPart load(const BwdArgs& args, const MaskPlace& of, u32 wg, u32 thread,
                                  i32 tile, int j) {
    BwdMaskPart part{};
    if constexpr (kCfg.adds_mask()) {
      const i32 first = of.key + static_cast<i32>(kCfg.own_keys() * wg);  // of its keys
      part.added = MaskImageBlock<Element>::of(args.image, of.batch, of.head, tile,
                                               first / kMaskImageRows, thread)
                       .load(j);
    } else if constexpr (kCfg.has_mask()) {
      const MaskTensorArgs& mask = args.mask;
      const i32 batch = of.batch, head = of.head;
      const i32 key = of.key + static_cast<i32>(kCfg.own_keys() * wg + fragment_row(thread));
      FA3_UNROLL
      for (int n = 0; n < 2; ++n) {
        // Rows that do not count have P = 0, whatever the mask says of others.
        const i32 query =
            min(kCfg.tile_q * tile + 8 * j + n + static_cast<i32>(fragment_column(thread)),
                args.q_axis.rows - 1);
        part.shown[n] = ptx::ld_global(mask.bits + batch * mask.bits_batch + head * mask.bits_head +
                                       query * mask.bits_row + key / 32 * mask.step) >>
                        (key % 32);
      }
    }
    return part;
  }
};

}  // namespace fa3::sm90
