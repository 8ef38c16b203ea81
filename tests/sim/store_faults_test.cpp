// SPDX-License-Identifier: BSD-3-Clause
// store_faults_test.cpp — the epilogue of a kernel: right on every seed; without its fence, barrier
// or wait it is reported.
#include "sim/faults.h"
#include "sim/kernels/store.h"

namespace fa3::sim {
namespace {

using namespace faulty;

struct Store {
  using Args = StoreArgs;
  static constexpr u32 kTiles = 7, kRows = 2 * kTiles * 64;

  Device device;
  Array<u16> c{device, "c", kRows * 64};
  Args args{};

  Store() {
    args.c = matrix_map(c.data(), TmaType::kBf16, 64, kRows, 64, 64, Swizzle::k128);
    args.tiles = kTiles;
  }
  void clear() { std::memset(c.data(), 0xFF, c.size() * 2); }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    return violation_of(device, kernel, {{1, 1, 1}, 256, sizeof(StoreSmem)}, args);
  }
  size_t wrong() {
    size_t count = 0;
    for (u32 row = 0; row < kRows; ++row)
      for (u32 column = 0; column < 64; ++column) {
        const u32 tile = row / 64;
        const float value = store_value(tile / kTiles, tile % kTiles, row % 64, column);
        count += c[row * 64 + column] != from_double<Bf16>(value).bits;
      }
    return count;
  }
};

class StoreFaults : public testing::TestWithParam<Fault<Store>> {};
TEST_P(StoreFaults, IsReported) { expect_fault(GetParam()); }

template <StoreFault kFault>
constexpr auto kKernel = &store_tiles<kFault>;
using F = StoreFault;
constexpr Shows kEvery = Shows::kEverySeed;

const Report kNotFenced{Rule::kProxyFence, "c[", "after stmatrix wrote it",
                        "fence_proxy_async_shared() by the thread of stmatrix"};
// A buffer is written while a store reads it, before or after the store gets to those bytes.
const Report kWrittenAfter{Rule::kRace, "c[", "after the read by tma_store",
                           "bulk_wait_read() by the thread that issued"};
const Report kWrittenBefore{Rule::kRace, "c[", "after the write by stmatrix",
                            "bulk_wait_read() by its thread and a barrier before the write"};

const Fault<Store> kFaults[] = {
    {"MissingFence", kKernel<F::kMissingFence>, kEvery, {kNotFenced}},
    {"FenceByOneThread", kKernel<F::kFenceByOneThread>, kEvery, {kNotFenced}},
    {"MissingBarrier",
     kKernel<F::kMissingBarrier>,
     kEvery,
     {{Rule::kRace, "c[", "after the write by stmatrix", "a barrier between the write and the"}}},
    {"WaitByAnotherThread",
     kKernel<F::kWaitByAnotherThread>,
     kEvery,
     {kWrittenAfter, kWrittenBefore}},
    {"WaitOneTooMany", kKernel<F::kWaitOneTooMany>, kEvery, {kWrittenAfter, kWrittenBefore}},
    {"ExitInFlight",
     kKernel<F::kExitInFlight>,
     kEvery,
     {{Rule::kBulkGroup, "", "ended with a bulk store that may still read",
       "bulk_wait_read<0>()"}}},
    // No wait waits for it; on some seeds the buffers are written again before the thread ends.
    {"NoCommit",
     kKernel<F::kNoCommit>,
     kEvery,
     {{Rule::kBulkGroup, "", "bulk stores that no group was committed for", "bulk_commit()"},
      kWrittenAfter}},
    // The barrier is full with warps of both groups.
    {"SharedBarrier",
     kKernel<F::kSharedBarrier>,
     Shows::kWithin64,
     {{Rule::kRace, "c[", "after the write by stmatrix", "a barrier between the write and the"},
      {Rule::kUninitialized, "c[", "tma_store reads c[", "a store or a completed copy"},
      kWrittenAfter}},
    {"BarrierOfTwoCounts",
     kKernel<F::kBarrierOfTwoCounts>,
     kEvery,
     {{Rule::kNamedBarrier, "named barrier", "a count of", "the same count from every"}}},
    {"BarrierOfTooMany",
     kKernel<F::kBarrierOfTooMany>,
     kEvery,
     {{Rule::kDeadlock, "", "named barrier 1: want 160 threads, have 128",
       "32 threads at named barrier 1"}}},
    {"BarrierId16",
     kKernel<F::kBarrierId16>,
     kEvery,
     {{Rule::kNamedBarrier, "named barrier 16", "bar_sync with id 16", "an id from 0 to 15"}}},
    {"ElectDivergent",
     kKernel<F::kElectDivergent>,
     kEvery,
     {{Rule::kDivergence, "", "elect at store.h", "all lanes of the mask"}}},
    {"LanesMissing",
     kKernel<F::kLanesMissing>,
     kEvery,
     {{Rule::kDivergence, "", "stmatrix", "all lanes of the mask"}}},
    {"WrongRow",
     kKernel<F::kWrongRow>,
     kEvery,
     {{Rule::kRace, "c[", "after the write by stmatrix", "or other addresses"}}},
    {"BeyondBuffer",
     kKernel<F::kBeyondBuffer>,
     kEvery,
     {{Rule::kOutOfBounds, "", "tma_store of 8192 bytes at offset", "inside the CTA's shared"}}},
    {"NegativeRow",
     kKernel<F::kNegativeRow>,
     kEvery,
     {{Rule::kTma, "", "tma_store with coordinate 1 = -64", "coordinates of at least 0"}}},
};
INSTANTIATE_TEST_SUITE_P(Sim, StoreFaults, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<Store>>>);

TEST(SimStore, Correct_EverySeed) { expect_correct<Store>(kKernel<F::kNone>); }

}  // namespace
}  // namespace fa3::sim
