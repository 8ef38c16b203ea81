// SPDX-License-Identifier: BSD-3-Clause
// descriptor.h — the 64 bits by which wgmma finds an operand in shared memory (PTX ISA 9.1,
// 9.7.15.5.1.2.2), and whole tiles as sequences of them.
//
//   bits 13:0 address / 16 · 29:16 leading offset / 16 · 45:32 stride offset / 16 · 63:62 swizzle
//   (51:49 stay 0: patterns start at their natural boundary)
//
//                        stride offset (SBO)        leading offset (LBO)
//   K-major, swizzled    8 rows of M/N → next 8     not used
//   K-major, unswizzled  8 rows of M/N → next 8     16 bytes of K → next 16
//   MN-major, swizzled   8 rows of K → next 8       W bytes of M/N → next W (a panel)
//   MN-major, unswizzled 8 elements of M/N → next   8 rows of K → next 8
#pragma once

#include "device/hopper/swizzle.h"
#include "device/ptx/smem.h"
#include "device/ptx/warp.h"
#include "device/tensor_map.h"
#include "device/types.h"

namespace fa3 {

struct SmemDesc {
  u64 bits;

  FA3_HD static constexpr SmemDesc make(u32 address, u32 leading, u32 stride, Swizzle swizzle) {
    const u64 mode = swizzle == Swizzle::k128  ? 1
                     : swizzle == Swizzle::k64 ? 2
                     : swizzle == Swizzle::k32 ? 3
                                               : 0;
    return {u64((address & 0x3FFFF) >> 4) | u64(leading >> 4) << 16 | u64(stride >> 4) << 32 |
            mode << 62};
  }

  // The same operand further on. Shared memory ends before the address field does.
  FA3_HD constexpr SmemDesc advanced(u32 bytes) const { return {bits + (bytes >> 4)}; }
};

// A tile whose rows run along K, in panels: [K panel][row of M or N][W bytes]. TMA writes it so
// with a box of W bytes × rows per panel. Q and K of attention; P and dS through shared memory.
template <Swizzle kSwizzle, u32 kPanelBytes>
struct KMajorTile {
  static_assert(kSwizzle != Swizzle::kNone, "KMajorTile: a swizzle of 32, 64 or 128 bytes");
  static constexpr bool kTransposed = false;
  static constexpr u32 kWidth = static_cast<u32>(kSwizzle);
  static constexpr u32 kStepsPerPanel = kWidth / 32;
  static_assert(kPanelBytes % swizzle_period(kSwizzle) == 0,
                "KMajorTile: panels start at a period of the swizzle, so 8 rows or a multiple");

  SmemDesc base;

  FA3_HD static constexpr KMajorTile at(u32 address) {
    return {SmemDesc::make(address, 16, 8 * kWidth, kSwizzle)};
  }
  // From row `row` on, a multiple of 8.
  FA3_HD constexpr KMajorTile from_row(u32 row) const { return {base.advanced(row * kWidth)}; }
  // A tile of the same shape `bytes` further on: another stage of a ring.
  FA3_HD constexpr KMajorTile after(u32 bytes) const { return {base.advanced(bytes)}; }
  // Starts at step s. Valid if s begins a panel, or if the GEMM's steps end in s's panel.
  FA3_HD constexpr KMajorTile from_step(u32 s) const { return {step(s)}; }
  // The operand of one wgmma: 32 bytes of K.
  FA3_HD constexpr SmemDesc step(u32 s) const {
    return base.advanced(s / kStepsPerPanel * kPanelBytes + s % kStepsPerPanel * 32);
  }
};

// A tile of 16-bit elements whose rows run along M or N, in panels: [M/N panel][row of K][W bytes].
// V of attention; transposed Q, K, dO, P and dS of its gradient.
template <Swizzle kSwizzle, u32 kPanelBytes>
struct MnMajorTile {
  static_assert(kSwizzle != Swizzle::kNone, "MnMajorTile: a swizzle of 32, 64 or 128 bytes");
  static constexpr bool kTransposed = true;
  static constexpr u32 kWidth = static_cast<u32>(kSwizzle);
  static_assert(kPanelBytes % swizzle_period(kSwizzle) == 0,
                "MnMajorTile: panels start at a period of the swizzle, so 8 rows or a multiple");

  SmemDesc base;

  FA3_HD static constexpr MnMajorTile at(u32 address) {
    return {SmemDesc::make(address, kPanelBytes, 8 * kWidth, kSwizzle)};
  }
  // From element `element` of M or N on, a multiple of a panel's.
  FA3_HD constexpr MnMajorTile from_row(u32 element) const {
    return {base.advanced(element / (kWidth / 2) * kPanelBytes)};
  }
  // A tile of the same shape `bytes` further on: another stage of a ring.
  FA3_HD constexpr MnMajorTile after(u32 bytes) const { return {base.advanced(bytes)}; }
  // The operand of one wgmma: 16 rows of K.
  FA3_HD constexpr SmemDesc step(u32 s) const { return base.advanced(s * 16 * kWidth); }
};

// The tile that starts at `start`. The address comes from lane 0, so that the compiler sees one
// value per warp and builds descriptors in uniform registers; the whole warp must call.
template <class Tile>
FA3_DEV Tile tile_at(const void* start, Where where = Where::here()) {
  return Tile::at(ptx::shfl_idx(ptx::smem_address(start, where), 0, 32, ~0u, where));
}

}  // namespace fa3
