// SPDX-License-Identifier: BSD-3-Clause
// reduce_faults_test.cpp — dQ added to global memory by a writer warp: right on every seed; fences,
// barriers and waits of the hand-over matter.
#include "sim/faults.h"
#include "sim/kernels/reduce.h"

namespace fa3::sim {
namespace {

using namespace faulty;

struct Reduce {
  using Args = ReduceArgs;
  static constexpr u32 kTiles = 4, kBlocks = 2;

  Device device;
  Array<u16> k{device, "k", 64 * 64, true};
  Array<float> dq{device, "dq", 64 * 64};
  std::vector<float> expected = std::vector<float>(64 * 64);
  Args args{};

  Reduce() {
    const auto k_at = [](u32 n, u32 d) { return static_cast<float>((n * 7 + d * 2) % 5) - 2; };
    for (u32 i = 0; i < 64 * 64; ++i) k[i] = from_double<Bf16>(k_at(i / 64, i % 64)).bits;
    for (u32 thread = 0; thread < 128; ++thread)
      for (u32 i = 0; i < 32; ++i) {
        const Place place = accumulator_place(thread, i);
        float sum = 0;
        for (u32 block = 0; block < kBlocks; ++block)
          for (u32 tile = 0; tile < kTiles; ++tile)
            for (u32 n = 0; n < 64; ++n)
              sum += score_gradient(block, tile, n, place.row) * k_at(n, place.column);
        expected[dq_slot(thread, i)] = sum;
      }
    args.k = matrix_map(k.data(), TmaType::kBf16, 64, 64, 64, 64, Swizzle::k128);
    args.dq = dq.data();
    args.tiles = kTiles;
  }
  void clear() { std::memset(dq.data(), 0, dq.size() * sizeof(float)); }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    LaunchShape shape{{kBlocks, 1, 1}, 256, sizeof(ReduceSmem)};
    shape.interacting = true;
    return violation_of(device, kernel, shape, args);
  }
  size_t wrong() {
    size_t count = 0;
    for (size_t i = 0; i < expected.size(); ++i) count += !(dq[i] == expected[i]);
    return count;
  }
};

class ReduceFaults : public testing::TestWithParam<Fault<Reduce>> {};
TEST_P(ReduceFaults, IsReported) { expect_fault(GetParam()); }

template <ReduceFault kFault>
constexpr auto kKernel = &reduce_gradient<kFault>;
using F = ReduceFault;
constexpr Shows kEvery = Shows::kEverySeed;

// The buffer of the sums is written while the copy engine reads it, before or after it gets there.
const Report kWrittenAfter{Rule::kRace, "dq", "after the read by bulk_reduce_add",
                           "bulk_wait_read() by the thread that issued"};
const Report kWrittenBefore{Rule::kRace, "dq", "after the write by st_shared",
                            "bulk_wait_read() by its thread and a barrier before the write"};
const Report kArrivesTwice{Rule::kNamedBarrier, "named barrier", "arrives twice at named barrier",
                           "one arrival per warp and generation"};

const Fault<Reduce> kFaults[] = {
    {"MissingScoreFence",
     kKernel<F::kMissingScoreFence>,
     kEvery,
     {{Rule::kProxyFence, "ds", "after stmatrix wrote it", "by the thread of stmatrix"}}},
    {"MissingScoreBarrier",
     kKernel<F::kMissingScoreBarrier>,
     kEvery,
     {{Rule::kRace, "ds", "after the write by stmatrix",
       "a barrier between the write and the wgmma"}}},
    {"WarpSyncForBarrier",
     kKernel<F::kWarpSyncForBarrier>,
     kEvery,
     {{Rule::kRace, "ds", "after the write by stmatrix",
       "a barrier between the write and the wgmma"}}},
    {"MissingSumFence",
     kKernel<F::kMissingSumFence>,
     kEvery,
     {{Rule::kProxyFence, "dq", "after st_shared wrote it", "by the thread of st_shared"}}},
    // Nothing waits for the writer's arrivals: it comes twice, if the sums do not collide first.
    {"MissingEmptyBarrier",
     kKernel<F::kMissingEmptyBarrier>,
     kEvery,
     {kArrivesTwice, kWrittenBefore}},
    {"MissingReadWait", kKernel<F::kMissingReadWait>, kEvery, {kWrittenAfter, kWrittenBefore}},
    {"WaitByAnotherLane", kKernel<F::kWaitByAnotherLane>, kEvery, {kWrittenAfter, kWrittenBefore}},
    {"CountWithoutWriter",
     kKernel<F::kCountWithoutWriter>,
     kEvery,
     {{Rule::kNamedBarrier, "named barrier 3", "a count of", "the same count from every"}}},
    {"StoreNotReduce",
     kKernel<F::kStoreNotReduce>,
     kEvery,
     {{Rule::kGlobalRace, "dq", "after the write by bulk_store", "or reductions for both"}}},
    {"NotPrimed",
     kKernel<F::kNotPrimed>,
     kEvery,
     {{Rule::kDeadlock, "", "named barrier 3: want 160 threads, have 128", "at named barrier"}}},
    // The second arrival is counted for the next round when the first round is over by then.
    {"PrimedTwice", kKernel<F::kPrimedTwice>, kEvery, {kArrivesTwice, kWrittenAfter}},
};
INSTANTIATE_TEST_SUITE_P(Sim, ReduceFaults, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<Reduce>>>);

TEST(SimReduce, Correct_EverySeed) { expect_correct<Reduce>(kKernel<F::kNone>); }

}  // namespace
}  // namespace fa3::sim
