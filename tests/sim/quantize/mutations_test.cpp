// SPDX-License-Identifier: BSD-3-Clause
// mutations_test.cpp — every wait, arrival, fence and barrier of the quantising kernels is left out
// in turn, in the simulator.
#include "sim/mutations.h"

#include <algorithm>
#include <random>
#include <vector>

#include "device/sm90/quantize/codes.cuh"
#include "device/sm90/quantize/maxima.cuh"
#include "device/sm90/quantize/means.cuh"
#include "plan/sm90/quantize_plan.h"

namespace fa3::sim {
namespace {

using namespace sm90;

constexpr u64 kSeeds = 60;  // schedules to try before a line counts as not missed
constexpr int kSeqlen = 1100, kHeads = 2;

struct Mutated {
  const char* name;
  int head_dim;
  int hadamard;
  int block_rows;  // 0 = a scale for each head
  bool means;
};
void PrintTo(const Mutated& m, std::ostream* out) { *out << m.name; }

// Compiled into the test: TurnConfig{head_dim, hadamard} of BF16, as codes of INT8.
template <int kHeadDim, int kHadamard, int kBlockRows>
bool add_kernels() {
  constexpr TurnConfig kTurn{.x = FloatType::kBf16, .head_dim = kHeadDim, .hadamard = kHadamard};
  constexpr QuantizeConfig kConfig{kTurn, true, kBlockRows};
  const auto add = [&](QuantizePass pass, Kernel kernel) {
    QuantizePlan plan;
    plan.pass = pass, plan.config = kConfig;
    const Registration made(program_of(plan).expression.c_str(), std::move(kernel));
  };
  add(QuantizePass::kMeans, kernel_of(&quantize_means<kTurn>));
  add(QuantizePass::kMaxima, kernel_of(&quantize_maxima<kConfig>));
  add(QuantizePass::kCodes, kernel_of(&quantize_codes<kConfig>));
  return true;
}
const bool added = add_kernels<64, 64, 128>() && add_kernels<128, 128, 0>() &&
                   add_kernels<32, 0, 0>() && add_kernels<32, 0, 64>();

// fa3_quantize of one sequence on one SM, so that a CTA goes over several tiles.
class QuantizeRun {
 public:
  QuantizeRun(TestRuntime& runtime, const Mutated& m)
      : runtime_(runtime),
        x_(static_cast<size_t>(kSeqlen * kHeads * m.head_dim)),
        codes_(x_.size()),
        scale_(
            static_cast<size_t>(kHeads * (m.block_rows == 0 ? 1 : div_up(kSeqlen, m.block_rows)))),
        mean_(static_cast<size_t>(kHeads * m.head_dim)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (u16& bits : x_) bits = static_cast<u16>(std::bit_cast<u32>(normal(random)) >> 16);
    fa3_quantize_args a{};
    a.struct_size = sizeof a;
    const int64_t d = m.head_dim, blocks = static_cast<int64_t>(scale_.size()) / kHeads;
    a.x = tensor(x_.data(), FA3_BF16, {1, kSeqlen, kHeads, d});
    a.codes = tensor(codes_.data(), FA3_I8, {1, kSeqlen, kHeads, d});
    a.scale = tensor(scale_.data(), FA3_F32, {1, kHeads, blocks, 1});
    if (m.means) a.offset = tensor(mean_.data(), FA3_F32, {1, kHeads, d});
    a.block = {m.block_rows, 0};
    a.hadamard = m.hadamard, a.seed = 1;
    const Args args = value(read_args(FA3_OP_QUANTIZE, &a));
    problem_ = value(make_problem(args));
    buffers_ = value(make_buffers(args, problem_));
    DeviceInfo device = test_device();
    device.multiprocessors = 1;
    std::vector<KernelStep> steps;
    for (const QuantizePlan& plan : value(make_quantize_plans(problem_, device)))
      steps.push_back(step_of(plan, 0));
    launched_ = plan_with(problem_, std::move(steps));
    workspace_.resize(1 + kernel_bytes(launched_) / sizeof(Line));
    const auto add = [&](const char* name, auto& of) {
      runtime_.device.memory.add(name, of.data(), of.size() * sizeof(of[0]));
    };
    add("x", x_), add("codes", codes_), add("scale", scale_), add("offset", mean_);
    add("workspace", workspace_);
  }
  ~QuantizeRun() {
    for (void* base : {static_cast<void*>(x_.data()), static_cast<void*>(codes_.data()),
                       static_cast<void*>(scale_.data()), static_cast<void*>(mean_.data()),
                       static_cast<void*>(workspace_.data())})
      runtime_.device.memory.remove(base);
  }
  QuantizeRun(const QuantizeRun&) = delete;
  QuantizeRun& operator=(const QuantizeRun&) = delete;

  // Throws Violation.
  void run() {
    std::fill(codes_.begin(), codes_.end(), u8{0xFF});
    std::fill(scale_.begin(), scale_.end(), -7.f);
    std::fill(mean_.begin(), mean_.end(), -7.f);
    const Status status =
        launch(launched_, runtime_, {}, buffers_, reinterpret_cast<std::byte*>(workspace_.data()));
    if (!status.ok()) throw std::runtime_error(status.message);
  }
  std::vector<unsigned char> bits() const {
    std::vector<unsigned char> all(codes_.begin(), codes_.end());
    for (const std::vector<float>* of : {&scale_, &mean_}) {
      const auto* const begin = reinterpret_cast<const unsigned char*>(of->data());
      all.insert(all.end(), begin, begin + of->size() * sizeof(float));
    }
    return all;
  }

 private:
  template <class T>
  static T value(Result<T> result) {
    if (!result.ok()) throw std::runtime_error(result.status().message);
    return std::move(result.value());
  }
  static fa3_tensor tensor(void* data, fa3_dtype dtype, const std::vector<int64_t>& shape) {
    return fa3_dense(data, dtype, static_cast<int32_t>(shape.size()), shape.data());
  }

  TestRuntime& runtime_;
  std::vector<u16> x_;
  std::vector<u8> codes_;
  std::vector<float> scale_, mean_;
  Problem problem_;
  Buffers buffers_;
  struct alignas(kWorkspaceAlign) Line {
    std::byte bytes[kWorkspaceAlign];
  };
  Plan launched_;
  std::vector<Line> workspace_;
};

// Of one warpgroup. Where two share a stage it is missed.
constexpr char kWarps[] =
    "the simulator's wgmma is complete for four warps at once; GPUs promise it to each alone";
const std::vector<Spared> kSpared = {{"heads", "warps", kWarps}, {"means", "warps", kWarps}};

class QuantizeMutations : public testing::TestWithParam<Mutated> {};

TEST_P(QuantizeMutations, EveryLineIsMissed) {
  if (kSanitized) GTEST_SKIP() << "those of the backward are enough for sanitizers";
  TestRuntime runtime;
  QuantizeRun quantisation(runtime, GetParam());
  Mutations(runtime, quantisation).expect_every_line_missed(GetParam().name, kSpared, kSeeds, 2);
}

INSTANTIATE_TEST_SUITE_P(Kernels, QuantizeMutations,
                         testing::Values(Mutated{"blocks", 64, 64, 128, false},
                                         Mutated{"heads", 128, 128, 0, false},
                                         Mutated{"means", 128, 128, 0, true},
                                         Mutated{"pieces", 32, 0, 0, true},
                                         Mutated{"piece_blocks", 32, 0, 64, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3::sim
