// SPDX-License-Identifier: BSD-3-Clause
// device_test.cpp — launches as such: replay, OS threads, grids larger than the machine, CTAs that
// wait for each other, the event log, limits, and a device that goes on after a violation.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/status.h"
#include "device/hopper/barrier.h"
#include "device/ptx/atomic.h"
#include "device/ptx/bulk.h"
#include "device/ptx/fence.h"
#include "device/ptx/grid.h"
#include "device/ptx/memory.h"
#include "device/ptx/thread.h"
#include "device/ptx/tma.h"
#include "device/ptx/warp.h"
#include "sim/kernels/copy.h"
#include "sim/kit.h"

namespace fa3::sim {
namespace {

struct ChainArgs {
  u32* flags;   // one per CTA, 0 at the start
  u32* values;  // CTA i writes values[i] = values[i − 1] + 1
};

// Each CTA waits for the one before it.
void chain(const ChainArgs args) {
  const u32 me = ptx::block_index_x();
  if (ptx::thread_index() != 0) return;
  u32 before = 0;
  if (me > 0) {
    while (ptx::ld_acquire_gpu(args.flags + me - 1) == 0) {
    }
    before = ptx::ld_global(args.values + me - 1);
  }
  ptx::st_global(args.values + me, before + 1);
  ptx::st_release_gpu(args.flags + me, 1u);
}

// The same without release: the value may not have arrived.
void broken_chain(const ChainArgs args) {
  const u32 me = ptx::block_index_x();
  if (ptx::thread_index() != 0) return;
  u32 before = 0;
  if (me > 0) {
    while (ptx::ld_acquire_gpu(args.flags + me - 1) == 0) {
    }
    before = ptx::ld_global(args.values + me - 1);
  }
  ptx::st_global(args.values + me, before + 1);
  ptx::st_relaxed_gpu(args.flags + me, 1u);
}

class SimDevice : public ::testing::Test {
 protected:
  // Runs `copy` on `ctas` CTAs; checks what it wrote.
  Stats run_copy(Device& device, u32 ctas) {
    Array<u32> in(device, "in", ctas * 256, true), out(device, "out", ctas * 256);
    for (u32 i = 0; i < in.size(); i++) in[i] = i * 2654435761u;
    CopyArgs args{};
    args.map = matrix_map(in.data(), TmaType::kU32, 32, ctas * 8, 32, 8, Swizzle::kNone);
    args.out = out.data();
    const Kernel kernel = [](const void* a) { copy(*static_cast<const CopyArgs*>(a)); };
    const Stats stats = device.launch(kernel, {{ctas, 1, 1}, 128, sizeof(CopySmem)}, &args);
    EXPECT_TRUE(std::equal(in.data(), in.data() + in.size(), out.data()));
    return stats;
  }
};

TEST_F(SimDevice, SameSeed_SameRun) {
  std::set<u64> steps;
  for (u64 seed = 0; seed < 20; seed++) {
    Device one, two;
    one.options.seed = two.options.seed = seed;
    two.options.workers = 2;  // which worker runs a CTA makes no difference
    const Stats a = run_copy(one, 6), b = run_copy(two, 6);
    EXPECT_EQ(a.steps, b.steps);
    EXPECT_EQ(a.events, b.events);
    steps.insert(a.steps);
  }
  EXPECT_GT(steps.size(), 15u);
}

TEST_F(SimDevice, GridLargerThanMachine) {
  Device device;
  device.options.sms = 2;
  run_copy(device, 300);
}

TEST_F(SimDevice, CtasThatWaitForEachOther) {
  for (u64 seed = 0; seed < some_of(60); seed++) {
    Device device;
    device.options.seed = seed;
    device.options.sms = 2;
    Array<u32> flags(device, "flags", 100), values(device, "values", 100);
    std::fill_n(flags.data(), 100, 0);
    const ChainArgs args{flags.data(), values.data()};
    LaunchShape shape{{100, 1, 1}, 32, 0};
    shape.interacting = true;
    const auto violation = violation_of(device, &chain, shape, args);
    ASSERT_FALSE(violation) << violation->what();
    ASSERT_EQ(values[99], 100u);
  }
}

TEST_F(SimDevice, MissingRelease_IsAGlobalRace) {
  for (u64 seed = 0; seed < 20; seed++) {
    Device device;
    device.options.seed = seed;
    Array<u32> flags(device, "flags", 4), values(device, "values", 4);
    std::fill_n(flags.data(), 4, 0);
    LaunchShape shape{{4, 1, 1}, 32, 0};
    shape.interacting = true;
    const auto violation =
        violation_of(device, &broken_chain, shape, ChainArgs{flags.data(), values.data()});
    ASSERT_TRUE(violation);
    EXPECT_EQ(violation->rule, Rule::kGlobalRace) << violation->what();
    EXPECT_EQ(violation->object, "values");
    EXPECT_THAT(violation->missing, testing::HasSubstr("a release and an acquire"));
  }
}

TEST_F(SimDevice, CtasThatTalkMustSaySo) {
  Device device;
  Array<u32> flags(device, "flags", 4), values(device, "values", 4);
  std::fill_n(flags.data(), 4, 0);
  const auto violation = violation_of(device, &chain, LaunchShape{{4, 1, 1}, 32, 0},
                                      ChainArgs{flags.data(), values.data()});
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->rule, Rule::kLaunch);
  EXPECT_THAT(violation->missing, testing::HasSubstr("LaunchShape::interacting"));
}

TEST_F(SimDevice, WaitForNobody_IsALivelock) {
  Device device;
  Array<u32> flags(device, "flags", 1), values(device, "values", 1);
  flags[0] = 0;
  const auto poll = +[](const ChainArgs args) {
    while (ptx::ld_acquire_gpu(args.flags) == 0) {
    }
  };
  const auto violation = violation_of(device, poll, LaunchShape{{1, 1, 1}, 32, 0},
                                      ChainArgs{flags.data(), values.data()});
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->rule, Rule::kLivelock) << violation->what();
}

// So are lanes that vote on what they have found.
TEST_F(SimDevice, VotesForNobody_AreALivelock) {
  Device device;
  Array<u32> flags(device, "flags", 1), values(device, "values", 1);
  flags[0] = 0;
  const auto poll = +[](const ChainArgs args) {
    while (ptx::any(ptx::ld_acquire_gpu(args.flags) == 0)) {
    }
  };
  const auto violation = violation_of(device, poll, LaunchShape{{1, 1, 1}, 32, 0},
                                      ChainArgs{flags.data(), values.data()});
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->rule, Rule::kLivelock) << violation->what();
}

struct PublishedSmem {
  alignas(16) u32 ones[4];
  FA3_NAMED(ones)
};

// A copy that completes as late as it can does so while others vote.
TEST_F(SimDevice, VotesForACopy_EndWhenItIsThere) {
  const auto publish = +[](const ChainArgs args) {
    auto& smem = ptx::smem_as<PublishedSmem>();
    const u32 thread = ptx::thread_index();
    if (thread == 0) {
      ptx::st_shared(reinterpret_cast<ptx::Vec<u32, 4>*>(smem.ones),
                     ptx::Vec<u32, 4>{{1, 1, 1, 1}});
      ptx::fence_proxy_async_shared();
      ptx::bulk_store(args.values, ptx::smem_address(smem.ones), 16);
      ptx::bulk_commit();
      ptx::bulk_wait<0>();
      ptx::st_release_gpu(args.flags, 1u);
    }
    if (thread < 32) return;
    while (ptx::any(ptx::ld_acquire_gpu(args.flags) == 0)) ptx::nanosleep(20);
    if (thread == 32) ptx::st_global(args.values + 4, ptx::ld_global(args.values) + 1);
  };
  Device device;
  device.options.completion = Completion::kLate;
  Array<u32> flags(device, "flags", 1), values(device, "values", 8);
  for (u64 seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    device.options.seed = seed;
    flags[0] = values[0] = values[4] = 0;
    const auto violation =
        violation_of(device, publish, LaunchShape{{1, 1, 1}, 64, sizeof(PublishedSmem)},
                     ChainArgs{flags.data(), values.data()});
    ASSERT_FALSE(violation) << violation->what();
    EXPECT_EQ(values[4], 2u);
  }
}

TEST_F(SimDevice, AfterAViolation_TheDeviceGoesOn) {
  Device device;
  for (int i = 0; i < 5; i++) {
    {
      Array<u32> values(device, "values", 4);
      const auto outside = +[](const ChainArgs args) {
        ptx::cta_sync();
        ptx::st_global(args.values + 4 + ptx::thread_index(), 1u);
      };
      const auto violation = violation_of(device, outside, LaunchShape{{2, 1, 1}, 64, 0},
                                          ChainArgs{nullptr, values.data()});
      ASSERT_TRUE(violation);
      EXPECT_EQ(violation->rule, Rule::kOutOfBounds) << violation->what();
      EXPECT_EQ(violation->object, "values");
      EXPECT_THAT(violation->accesses.at(0).where, testing::StartsWith("device_test.cpp:"));
    }
    run_copy(device, 4);
  }
}

TEST_F(SimDevice, Trace_IsJsonWithNamedRows) {
  Trace trace;
  Device device;
  device.options.trace = &trace;
  run_copy(device, 2);
  const auto json = nlohmann::json::parse(trace.json());
  std::set<std::string> names;
  for (const auto& event : json.at("traceEvents")) {
    names.insert(event.at("name").get<std::string>());
    if (event.at("ph") == "X") {
      EXPECT_GE(event.at("dur").get<i64>(), 0);
      EXPECT_NE(event.at("args").at("at"), "");
    }
  }
  EXPECT_TRUE(names.count("tma_load data")) << trace.json();
  EXPECT_TRUE(names.count("wait full")) << trace.json();
}

TEST_F(SimDevice, LimitsOfLaunches) {
  Device device;
  const Kernel kernel = [](const void*) {};
  const int args = 0;
  const auto message = [&](LaunchShape shape) {
    try {
      device.launch(kernel, shape, &args);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message({{1, 1, 1}, 32, 0}), "accepted");
  EXPECT_THAT(message({{1, 1, 1}, 1025, 0}), testing::HasSubstr("threads=1025, need 1…1024"));
  EXPECT_THAT(message({{1, 1, 1}, 32, 232449}), testing::HasSubstr("smem_bytes=232449"));
  EXPECT_THAT(message({{3, 1, 1}, 32, 0, 2}), testing::HasSubstr("no multiple of cluster=2"));
}

}  // namespace
}  // namespace fa3::sim
