// SPDX-License-Identifier: BSD-3-Clause
// threads_test.cpp — CTAs on several OS threads, small enough for ThreadSanitizer: what they share
// is the registered memory and the table of source lines.
#include "sim/kernels/copy.h"
#include "sim/kit.h"

namespace fa3::sim {
namespace {

std::optional<Violation> run(Device& device, bool overlap) {
  constexpr u32 kCtas = 24;
  Array<u32> in(device, "in", kCtas * 256, true), out(device, "out", kCtas * 256);
  for (u32 i = 0; i < in.size(); i++) in[i] = i * 2654435761u;
  CopyArgs args{};
  args.map = matrix_map(in.data(), TmaType::kU32, 32, kCtas * 8, 32, 8, Swizzle::kNone);
  args.out = out.data();
  args.overlap = overlap;
  auto violation = violation_of(device, &copy, {{kCtas, 1, 1}, 32, sizeof(CopySmem)}, args);
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
    const auto violation = run(device, false);
    ASSERT_FALSE(violation) << violation->what();
  }
}

// Found in either order of the accesses, on any thread.
TEST(SimThreads, RaceBetweenCtas) {
  for (u64 seed = 0; seed < 4; seed++) {
    Device device;
    device.options.seed = seed;
    device.options.workers = 4;
    const auto violation = run(device, true);
    ASSERT_TRUE(violation);
    EXPECT_EQ(violation->rule, Rule::kGlobalRace) << violation->what();
    EXPECT_EQ(violation->object, "out");
  }
}

}  // namespace
}  // namespace fa3::sim
