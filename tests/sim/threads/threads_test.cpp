// SPDX-License-Identifier: BSD-3-Clause
// threads_test.cpp — CTAs on several OS threads, small enough for ThreadSanitizer: what they share
// is the registered memory and the table of source lines.
#include "device/hopper/barrier.h"
#include "device/ptx/fence.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "sim/kit.h"

namespace fa3::sim {
namespace {

struct Smem {
  alignas(128) u32 data[256];
  Barrier full;
  FA3_NAMED(data, full)
};
struct CopyArgs {
  TensorMap map;
  u32* out;
  u32 overlap;  // 1: every CTA also writes the first element of the next one's
};

void copy(const CopyArgs args) {
  auto& smem = ptx::smem_as<Smem>();
  const u32 thread = ptx::thread_index(), cta = ptx::block_index_x();
  if (thread == 0) {
    smem.full.init(1);
    ptx::fence_mbar_init();
  }
  ptx::cta_sync();
  if (thread == 0) {
    smem.full.arrive_expect_tx(sizeof(smem.data));
    ptx::tma_load_2d(ptx::smem_address(smem.data), args.map, smem.full.address(), 0,
                     static_cast<i32>(8 * cta));
  }
  smem.full.wait(0);
  for (u32 i = thread; i < 256; i += 32)
    ptx::st_global(args.out + 256 * cta + i, ptx::ld_shared(&smem.data[i]));
  if (args.overlap != 0 && thread == 0 && cta + 1 < ptx::grid_dim_x())
    ptx::st_global(args.out + 256 * (cta + 1), 0u);
}

std::optional<Violation> run(Device& device, u32 overlap) {
  constexpr u32 kCtas = 24;
  Array<u32> in(device, "in", kCtas * 256, true), out(device, "out", kCtas * 256);
  for (u32 i = 0; i < in.size(); i++) in[i] = i * 2654435761u;
  CopyArgs args{};
  args.map = matrix_map(in.data(), TmaType::kU32, 32, kCtas * 8, 32, 8, Swizzle::kNone);
  args.out = out.data();
  args.overlap = overlap;
  auto violation = violation_of(device, &copy, {{kCtas, 1, 1}, 32, sizeof(Smem)}, args);
  if (!violation) {
    EXPECT_TRUE(std::equal(in.data(), in.data() + in.size(), out.data()));
  }
  return violation;
}

TEST(SimThreads, IndependentCtas) {
  for (u64 seed = 0; seed < 4; seed++) {
    Device device;
    device.options.seed = seed;
    device.options.workers = 4;
    const auto violation = run(device, 0);
    ASSERT_FALSE(violation) << violation->what();
  }
}

// Found whoever comes first, on whichever thread.
TEST(SimThreads, RaceBetweenCtas) {
  for (u64 seed = 0; seed < 4; seed++) {
    Device device;
    device.options.seed = seed;
    device.options.workers = 4;
    const auto violation = run(device, 1);
    ASSERT_TRUE(violation);
    EXPECT_EQ(violation->rule, Rule::kGlobalRace) << violation->what();
    EXPECT_EQ(violation->object, "out");
  }
}

}  // namespace
}  // namespace fa3::sim
