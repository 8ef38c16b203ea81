// SPDX-License-Identifier: BSD-3-Clause
// attention_faults_test.cpp — the attention loop: right on every seed; waits, fences and releases
// in the wrong place are reported, operands laid out wrongly give other numbers.
#include "sim/faults.h"
#include "sim/kernels/attention.h"

namespace fa3::sim {
namespace {

using namespace faulty;

struct Attention {
  using Args = AttentionArgs;
  static constexpr int kTiles = 5, kKeys = 64 * kTiles, kDim = 64, kDimV = 128;

  Device device;
  Array<u16> q{device, "q", 64 * kDim, true}, k{device, "k", kKeys*kDim, true};
  Array<u16> v{device, "v", kKeys* kDimV, true};
  Array<float> weights{device, "weights", kKeys, true}, o{device, "o", 64 * kDimV};
  std::vector<float> expected = std::vector<float>(64 * kDimV);
  Args args{};

  Attention() {
    const auto q_at = [](int m, int d) { return (m * 7 + d * 3 + m / 5) % 3 - 1; };
    const auto k_at = [](int n, int d) { return (n * 5 + d * 2 + n / 7) % 3 - 1; };
    const auto v_at = [](int n, int d) { return (n * 3 + d * 5 + d / 9) % 5 - 2; };
    const auto weight_at = [](int n) { return n % 3 == 0 ? 0.5f : 1.0f; };
    const auto bits = [](double x) { return from_double<Bf16>(x).bits; };
    for (int i = 0; i < 64 * kDim; ++i) q[i] = bits(q_at(i / kDim, i % kDim));
    for (int i = 0; i < kKeys * kDim; ++i) k[i] = bits(k_at(i / kDim, i % kDim));
    for (int i = 0; i < kKeys * kDimV; ++i) v[i] = bits(v_at(i / kDimV, i % kDimV));
    for (int n = 0; n < kKeys; ++n) weights[n] = weight_at(n);
    for (int m = 0; m < 64; ++m)
      for (int n = 0; n < kKeys; ++n) {
        int score = 0;
        for (int d = 0; d < kDim; ++d) score += q_at(m, d) * k_at(n, d);
        const float p = static_cast<float>(score) * weight_at(n) / (1 << (kTiles - 1 - n / 64));
        for (int d = 0; d < kDimV; ++d) expected[m * kDimV + d] += p * v_at(n, d);
      }
    args.q = matrix_map(q.data(), TmaType::kBf16, kDim, 64, 64, 64, Swizzle::k128);
    args.k = matrix_map(k.data(), TmaType::kBf16, kDim, kKeys, 64, 64, Swizzle::k128);
    args.v = matrix_map(v.data(), TmaType::kBf16, kDimV, kKeys, 64, 64, Swizzle::k128);
    args.weights = weights.data();
    args.o = o.data();
    args.tiles = kTiles;
  }
  void clear() { std::memset(o.data(), 0xFF, o.size() * sizeof(float)); }
  std::optional<Violation> run(void (*kernel)(const Args)) {
    return violation_of(device, kernel, {{1, 1, 1}, 256, sizeof(AttentionSmem)}, args);
  }
  size_t wrong() {
    size_t count = 0;
    for (size_t i = 0; i < expected.size(); ++i) count += !(o[i] == expected[i]);
    return count;
  }
};

class AttentionFaults : public testing::TestWithParam<Fault<Attention>> {};
TEST_P(AttentionFaults, IsReported) { expect_fault(GetParam()); }

template <AttentionFault kFault, bool kPInShared = false>
constexpr auto kKernel = &attention<kFault, kPInShared>;
using F = AttentionFault;
constexpr Shows kEvery = Shows::kEverySeed;

const Report kReadEarly{Rule::kRace, "[", "after the write by tma_load",
                        "a wait for the full mbarrier"};
const Report kInFlight{Rule::kRegisterInFlight, "", "before the wait that covers it",
                       "wgmma_wait<N>()"};

const Fault<Attention> kFaults[] = {
    {"FullWaitByOneWarp", kKernel<F::kFullWaitByOneWarp>, kEvery, {kReadEarly}},
    {"TryWaitOnce", kKernel<F::kTryWaitOnce>, Shows::kWithin64, {kReadEarly}},
    // V's stage is filled while the GEMM still reads it, or before, or two rounds ahead of a
    // lane that has not seen the first.
    {"ReleaseWrongOperand",
     kKernel<F::kReleaseWrongOperand>,
     kEvery,
     {{Rule::kRace, "v[0]", "tma_load writes v[0]", "wgmma_wait() by the warpgroup that reads"},
      {Rule::kRace, "v[0]", "wgmma reads v[0]", "a wait for the full mbarrier"},
      {Rule::kMbarrier, "v_full[0]", "two phases late", "must not complete a phase"}}},
    {"ReadScoresBeforeWait", kKernel<F::kReadScoresBeforeWait>, kEvery, {kInFlight}},
    {"RescaleBeforeWait", kKernel<F::kRescaleBeforeWait>, kEvery, {kInFlight}},
    {"OverwriteP", kKernel<F::kOverwriteP>, kEvery, {kInFlight}},
    // The store comes before or after the GEMM's read.
    {"OverwritePInShared",
     kKernel<F::kOverwriteP, true>,
     kEvery,
     {{Rule::kRace, "p", "stmatrix writes p", "wgmma_wait() by the warpgroup that reads"},
      {Rule::kRace, "p", "wgmma reads p", "wgmma_wait() and a barrier before the write"}}},
    {"MissingFirstFence",
     kKernel<F::kMissingFirstFence>,
     kEvery,
     {{Rule::kWgmmaFence, "", "accumulators of a wgmma were accessed after the last wgmma_fence()",
       "wgmma_fence() between"}}},
    {"MissingFence",
     kKernel<F::kMissingFence>,
     kEvery,
     {{Rule::kWgmmaFence, "", "accumulators of a wgmma were accessed after the last wgmma_fence()",
       "wgmma_fence() between"}}},
    {"MissingCommit", kKernel<F::kMissingCommit>, kEvery, {kInFlight}},
    {"MissingWeightFence",
     kKernel<F::kMissingWeightFence>,
     kEvery,
     {{Rule::kProxyFence, "weights[", "bulk_load writes weights[",
       "fence_proxy_async_shared() by the thread of ld_shared"}}},
    {"MissingWarpSync",
     kKernel<F::kMissingWarpSync>,
     kEvery,
     {{Rule::kRace, "weights[", "after the read by ld_shared", "after a warp_sync()"}}},
    {"MissingProxyFence",
     kKernel<F::kMissingProxyFence, true>,
     kEvery,
     {{Rule::kProxyFence, "p", "after stmatrix wrote it",
       "fence_proxy_async_shared() by the thread of stmatrix"}}},
    {"QueryBeyondTile",
     kKernel<F::kQueryBeyondTile>,
     kEvery,
     {{Rule::kDescriptor, "", "operand A of a wgmma begins in q+4096 and ends in k[0]+4095",
       "a tile that holds all rows"}}},
    {"VAsKMajor", kKernel<F::kVAsKMajor>, Shows::kNumbers, {}},
    {"SwappedOffsets", kKernel<F::kSwappedOffsets>, Shows::kNumbers, {}},
};
INSTANTIATE_TEST_SUITE_P(Sim, AttentionFaults, testing::ValuesIn(kFaults),
                         fault_name<testing::TestParamInfo<Fault<Attention>>>);

TEST(SimAttentionLoop, PInRegisters_EverySeed) { expect_correct<Attention>(kKernel<F::kNone>); }
TEST(SimAttentionLoop, PInShared_EverySeed) { expect_correct<Attention>(kKernel<F::kNone, true>); }

}  // namespace
}  // namespace fa3::sim
