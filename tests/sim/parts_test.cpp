// SPDX-License-Identifier: BSD-3-Clause
// parts_test.cpp — tiles that come in parts: TMA boxes that add up to a swizzled tile, and copies
// by threads that several mbarriers track.
#include "device/hopper/barrier.h"
#include "device/hopper/swizzle.h"
#include "device/ptx/async_copy.h"
#include "device/ptx/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/ptx/smem.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "sim/kit.h"

namespace fa3::sim {
namespace {

constexpr u32 kRows = 16, kColumns = 64;  // of a tile, 128 bytes wide

struct TileSmem {
  alignas(1024) u8 tile[kRows * 128];
  Barrier full[2];
  FA3_NAMED(tile, full)
};

struct BoxArgs {
  TensorMap map;
  u32 at;     // of the first box, in rows
  u32 boxes;  // one after another
  u32 rows;   // of each
  u16* out;   // the tile, without its swizzle
};

void load_boxes(const BoxArgs args) {
  auto& smem = ptx::smem_as<TileSmem>();
  if (ptx::thread_index() == 0) {
    smem.full[0].init(1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (ptx::thread_index() == 0) {
    smem.full[0].arrive_expect_tx(args.boxes * args.rows * 128);
    for (u32 i = 0; i < args.boxes; ++i)
      ptx::tma_load_2d(ptx::smem_address(smem.tile) + (args.at + i * args.rows) * 128, args.map,
                       smem.full[0].address(), 0, static_cast<i32>(i * args.rows));
  }
  smem.full[0].wait(0);
  if (args.at != 0) return;
  for (u32 i = ptx::thread_index(); i < args.boxes * args.rows * kColumns; i += 32) {
    const u32 row = i / kColumns, column = i % kColumns;
    const u8* const from = smem.tile + panel_offset(row, 2 * column, Swizzle::k128);
    ptx::st_global(args.out + i, ptx::ld_shared(reinterpret_cast<const u16*>(from)));
  }
}

std::optional<Violation> load(u32 rows, u32 at, u32 boxes) {
  Device device;
  Array<u16> in(device, "in", kRows * kColumns, true), out(device, "out", kRows * kColumns);
  for (u32 i = 0; i < in.size(); ++i) in[i] = static_cast<u16>(i);
  const TensorMap map =
      matrix_map(in.data(), TmaType::kU16, kColumns, kRows, kColumns, rows, Swizzle::k128);
  const BoxArgs args{map, at, boxes, rows, out.data()};
  const auto violation = violation_of(device, load_boxes, {{1, 1, 1}, 32, sizeof(TileSmem)}, args);
  if (!violation && at == 0) {
    EXPECT_TRUE(std::equal(in.data(), in.data() + boxes * rows * kColumns, out.data()))
        << boxes << " boxes of " << rows;
  }
  return violation;
}

// Of every number of rows, as a table of pages makes them: together they are the tile that one box
// would have been, at the period of its swizzle.
TEST(SimParts, BoxesAddUpToATile) {
  for (const u32 rows : {1u, 2u, 4u, 8u, 3u}) EXPECT_FALSE(load(rows, 0, kRows / rows)) << rows;
}

TEST(SimParts, BoxesBeginAtMultiplesOfTheirRows) {
  for (const auto& [rows, at] : {std::pair(1u, 5u), {2u, 6u}, {4u, 4u}, {8u, 8u}, {6u, 2u}})
    EXPECT_FALSE(load(rows, at, 1)) << rows << " at row " << at;
  for (const auto& [rows, at] : {std::pair(2u, 1u), {4u, 2u}, {8u, 4u}, {12u, 2u}}) {
    const auto violation = load(rows, at, 1);
    ASSERT_TRUE(violation) << rows << " at row " << at;
    EXPECT_EQ(violation->rule, Rule::kAlignment) << violation->what();
  }
}

struct TrackArgs {
  const u32* in;
  u32* out;
};

// Thread 0 copies twice, and an mbarrier tracks each; warp 1 waits for the first alone.
void track(const TrackArgs args) {
  auto& smem = ptx::smem_as<TileSmem>();
  if (ptx::thread_index() == 0) {
    for (Barrier& full : smem.full) full.init(1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (ptx::thread_index() == 0) {
    for (u32 i = 0; i < 2; ++i) {
      ptx::cp_async_16(ptx::smem_address(smem.tile) + 16 * i, args.in + 4 * i);
      ptx::cp_async_mbar_arrive_noinc(smem.full[i].address());
    }
    ptx::cp_async_wait_all();
  } else if (ptx::thread_index() == 32) {
    smem.full[0].wait(0);
    ptx::st_global(args.out, ptx::ld_shared(reinterpret_cast<const u32*>(smem.tile)));
  }
}

// The second barrier, and a wait of the thread, take in the first copy, too: whichever of the three
// comes first, who has waited for the first barrier may read.
TEST(SimParts, CopiesThatSeveralTrack_AreOrderedForAll) {
  for (u64 seed = 0; seed < some_of(200); ++seed) {
    Device device;
    device.options.seed = seed;
    Array<u32> in(device, "in", 8, true), out(device, "out", 1);
    for (u32 i = 0; i < in.size(); ++i) in[i] = i + 7;
    const auto violation = violation_of(device, track, {{1, 1, 1}, 64, sizeof(TileSmem)},
                                        TrackArgs{in.data(), out.data()});
    ASSERT_FALSE(violation) << "seed " << seed << ": " << violation->what();
    EXPECT_EQ(out[0], 7u);
  }
}

}  // namespace
}  // namespace fa3::sim
