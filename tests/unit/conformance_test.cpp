// SPDX-License-Identifier: BSD-3-Clause
// conformance_test.cpp — a case's verdict from the runtimes' results; names of cases; the model
// of the tensor cores' sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "conformance/cases/cases.h"
#include "conformance/cases/suite.h"
#include "conformance/model/sum.h"

namespace fa3::selftest {
namespace {

using ::testing::HasSubstr;

// Memory of the host. A launch calls `kernel` with the case's two buffers.
class FakeRuntime final : public GpuRuntime {
 public:
  using Kernel = std::function<Status(uint32_t* in, uint32_t* out)>;

  FakeRuntime(std::string name, Kernel kernel) : name_(std::move(name)), kernel_(kernel) {}

  std::string name() const override { return name_; }
  void* allocate(size_t bytes, const char*) override { return new std::byte[bytes]; }
  void release(void* pointer) override { delete[] static_cast<std::byte*>(pointer); }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  Result<TensorMap> encode(const TensorMapSpec&) override { return TensorMap{}; }
  Status prepare(const Program&, StreamRef) override { return {}; }
  Status fill(void*, uint32_t, size_t, size_t, StreamRef) override { return {}; }
  Status zero(void* to, size_t bytes, StreamRef) override {
    std::memset(to, 0, bytes);
    return {};
  }
  Status launch(const Program&, const LaunchShape&, const void* args, size_t, StreamRef) override {
    uint32_t* const* pointers = static_cast<uint32_t* const*>(args);
    return kernel_(pointers[0], pointers[1]);
  }
  Status synchronize() override { return {}; }

 private:
  std::string name_;
  Kernel kernel_;
};

struct Pointers {
  uint32_t *in, *out;
};

// out[0] must be in[0] + 1; 3 within 0.5 is right too where the case gives a bound.
Case successor(bool with_bound = false) {
  return {"successor", {"none.cuh", "successor", kHopperArch}, [=](Random&) {
            Expected three{4, to_bytes(std::vector<uint32_t>{3})};
            if (with_bound) {
              three = {4, to_bytes(std::vector<float>{3.f}), {0.5f}};
            }
            Experiment experiment;
            experiment.buffers = {{"in", to_bytes(std::vector<uint32_t>{2}), {}},
                                  {"out", Bytes(4), three}};
            experiment.args = [](const Placed& placed) {
              return bytes_of(Pointers{placed.at<uint32_t>(0), placed.at<uint32_t>(1)});
            };
            return experiment;
          }};
}

Status write_three(uint32_t*, uint32_t* out) {
  *out = 3;
  return {};
}

Verdict judge_two(const FakeRuntime::Kernel& a, const FakeRuntime::Kernel& b, const Case& test) {
  FakeRuntime first("first", a), second("second", b);
  std::vector<Target> targets{{&first, ""}, {&second, ""}};
  return judge(targets, test, 0);
}

TEST(SelftestJudge, BothRight_Passes) {
  const Verdict verdict = judge_two(write_three, write_three, successor());
  EXPECT_EQ(verdict.status, FA3_CONFORMANCE_PASSED);
  EXPECT_EQ(verdict.message, "");
}

TEST(SelftestJudge, OneWrong_FailsAndSaysWhich) {
  const auto write_four = [](uint32_t*, uint32_t* out) -> Status {
    *out = 4;
    return {};
  };
  const Verdict verdict = judge_two(write_three, write_four, successor());
  EXPECT_EQ(verdict.status, FA3_CONFORMANCE_FAILED);
  EXPECT_THAT(verdict.message, HasSubstr("second: out: 1 of 1 elements differ; first [0]: got "
                                         "0x00000004"));
  EXPECT_THAT(verdict.message, HasSubstr("first and second: out: differs from byte 0 on"));
}

TEST(SelftestJudge, InputOverwrittenByOne_Fails) {
  const auto spill = [](uint32_t* in, uint32_t* out) -> Status {
    *in = 7;
    return write_three(in, out);
  };
  const Verdict verdict = judge_two(write_three, spill, successor());
  EXPECT_EQ(verdict.status, FA3_CONFORMANCE_FAILED);
  EXPECT_EQ(verdict.message, "first and second: in: differs from byte 0 on");
}

TEST(SelftestJudge, WithinTheBound_MayDiffer) {
  const auto write = [](float value) {
    return [value](uint32_t*, uint32_t* out) -> Status {
      std::memcpy(out, &value, 4);
      return {};
    };
  };
  EXPECT_EQ(judge_two(write(2.5f), write(3.5f), successor(true)).status, FA3_CONFORMANCE_PASSED);
  EXPECT_EQ(judge_two(write(3.f), write(3.6f), successor(true)).status, FA3_CONFORMANCE_FAILED);
  EXPECT_EQ(judge_two(write(3.f), write(std::nanf("")), successor(true)).status,
            FA3_CONFORMANCE_FAILED);
}

TEST(SelftestJudge, LostGpu_IsLeftAlone) {
  int launches = 0;
  FakeRuntime gpu("gpu", [&](uint32_t*, uint32_t*) {
    ++launches;
    return Status{FA3_CUDA_ERROR, "illegal address"};
  });
  std::vector<Target> targets{{&gpu, ""}};
  const Verdict first = judge(targets, successor(), 0);
  EXPECT_EQ(first.status, FA3_CONFORMANCE_FAILED);
  EXPECT_EQ(first.message, "gpu: illegal address");
  EXPECT_TRUE(first.device_lost);
  const Verdict second = judge(targets, successor(), 0);
  EXPECT_EQ(second.status, FA3_CONFORMANCE_SKIPPED);
  EXPECT_FALSE(second.device_lost);
  EXPECT_THAT(second.message, HasSubstr("since successor"));
  EXPECT_EQ(launches, 1);
}

TEST(SelftestCases, NamesAreUnique) {
  std::set<std::string> names;
  for (const Case& test : all_cases()) EXPECT_TRUE(names.insert(test.name).second) << test.name;
}

// One product of 2^0 among others too small for its unit: they are cut one by one.
TEST(SelftestSum, TermsAreCutBeforeTheyAreAdded) {
  const SumModel fp8 = *sum_model(MmaType::kE4m3), bf16 = *sum_model(MmaType::kBf16);
  const std::vector<Factors> small{{1, 1}, {0x1p-7, 0x1p-7}, {0x1p-7, 0x1p-7}};
  EXPECT_EQ(modelled_sum(fp8, 0, small), 1.f);
  EXPECT_EQ(modelled_sum(bf16, 0, small), 1.f + 0x1p-13f);
  EXPECT_EQ(modelled_sum(fp8, 1, {{-0x1p-7, 0x1p-6}}), 1.f - 0x1p-13f);
  EXPECT_EQ(modelled_sum(bf16, 1, {{0x1p-13, 0x1p-13}, {0x1p-13, 0x1p-13}}), 1.f);
  EXPECT_FALSE(sum_model(MmaType::kS8));
}

}  // namespace
}  // namespace fa3::selftest
