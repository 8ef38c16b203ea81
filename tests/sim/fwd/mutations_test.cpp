// SPDX-License-Identifier: BSD-3-Clause
// mutations_test.cpp — every wait, arrival, fence and barrier of the forward kernel is left out in
// turn, in the simulator: it has to report that, or the result has to differ. Lines whose loss
// goes unnoticed are listed below with the reason.
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <tuple>

#include "sim/fwd/configs.h"
#include "sim/fwd/kit.h"

namespace fa3::sim {
namespace {

// Schedules to try before a line counts as not missed.
constexpr u64 kSeeds = 60;

struct Mutated {
  const char* name;
  FwdConfig config;
  verify::Config problem;
};
void PrintTo(const Mutated& m, std::ostream* out) { *out << m.name; }

constexpr FwdConfig kFull = small(MaskKind::kFull, false);
constexpr FwdConfig kTwoQStages = [] {
  FwdConfig c = kFull;
  c.q_stages = 2;
  return c;
}();
constexpr FwdConfig kOInQ = [] {
  FwdConfig c = kFull;
  c.o_in_q = true;
  return c;
}();
constexpr FwdConfig kParts = with_uneven_parts(kFull);
constexpr FwdConfig kSkipping = [] {
  FwdConfig c = small(MaskKind::kCausal, true);
  c.consumer_wgs = 3;
  return c;
}();
constexpr FwdConfig kThreeStages = with_step(kFull, FwdStep::kThreeStage);
constexpr FwdConfig kSerial = with_step(kFull, FwdStep::kSerial);
constexpr FwdConfig kUnspecialised = without_specialisation(kFull);

constexpr FwdConfig kE4m3 = with_e4m3(kFull, 2);
constexpr FwdConfig kVImage = with_e4m3(kFull, 0);
constexpr FwdConfig kFlushed = with_flush(kVImage, 32);

const bool added =
    (add_fwd<kE4m3>(), add_fwd<kVImage>(), add_fwd<kFlushed>(), add_fwd<kFull>(),
     add_fwd<kTwoQStages>(), add_fwd<kOInQ>(), add_fwd<kParts>(), add_fwd<kSkipping>(),
     add_fwd<kThreeStages>(), add_fwd<kSerial>(), add_fwd<kUnspecialised>(), true);

// Several Q tiles for each of the four CTAs, and KV tiles for several rounds of the rings.
verify::Config dense() {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.heads_q = 2;
  c.alignment = 16;
  c.magnitude = 20;  // maxima grow, so that O is rescaled
  c.seqlen_q = 4 * 128 + 100;
  c.seqlen_kv = 5 * 32 + 9;
  return c;
}
verify::Config wide_v() {
  verify::Config c = dense();
  c.head_dim_v = 80;
  return c;
}
verify::Config varlen() {
  verify::Config c = dense();
  c.varlen_q = {300, 20, 450};
  c.varlen_kv = {200, 40, 0};  // Q tiles that visit no KV tile follow each other fast
  c.mask = FA3_MASK_CAUSAL;
  return c;
}

std::vector<Mutated> kernels() {
  return {{"two_stages", kFull, dense()},
          {"two_q_stages", kTwoQStages, dense()},
          {"o_in_q", kOInQ, dense()},
          {"o_parts", kParts, wide_v()},
          {"skipping", kSkipping, varlen()},
          {"three_stages", kThreeStages, dense()},
          {"serial", kSerial, dense()},
          {"unspecialised", kUnspecialised, dense()},
          {"e4m3", kE4m3, in_types_of(kE4m3, dense())},
          {"v_image", kVImage, in_types_of(kVImage, dense())},
          {"flushed", kFlushed, in_types_of(kFlushed, dense())}};
}

// ---- Lines whose loss goes unnoticed ------------------------------------------------------------

// By the tag sim:spare(…) at the end of the line, for all kernels or for one.
struct Spared {
  const char* kernel;  // nullptr = all
  const char* tag;
  const char* reason;
};
constexpr const char* kShortTile =
    "a slot is written again when the producer has loaded the tile after it: too late to matter, "
    "unless that has fewer KV tiles than the rings have stages, as in the kernel skipping";
constexpr Spared kSpared[] = {
    {nullptr, "reconverge", "for ptxas: uniform registers"},
    {nullptr, "lagging",
     "takes a lane that lags a round behind; SimFwdSm90 NoLse deadlocks without the line"},
    {"o_in_q", "work_read",
     "the scheduler writes the slot again when the producer has claimed, which is after it has "
     "loaded the next Q into the buffer that all have left"},
    {"two_stages", "work_read", kShortTile},
    {"two_q_stages", "work_read", kShortTile},
    {"o_parts", "work_read", kShortTile},
    {"three_stages", "work_read", kShortTile},
    {"serial", "work_read", kShortTile},
    {"e4m3", "work_read", kShortTile},
    {"v_image", "work_read", kShortTile},
    {"flushed", "work_read", kShortTile},
    {"v_image", "converge", "the simulator does not ask whether lanes are converged"},
    {"flushed", "converge", "the simulator does not ask whether lanes are converged"},
    {"unspecialised", "converge", "the simulator does not ask whether lanes are converged"},
    {"unspecialised", "work_read", "a CTA works on one tile"},
    {"unspecialised", "one_tile", "a CTA works on one tile"},
};

const Spared* spared(const char* kernel, const std::string& source) {
  for (const Spared& s : kSpared) {
    if (s.kernel != nullptr && std::strcmp(s.kernel, kernel) != 0) continue;
    if (source.find(std::string("sim:spare(") + s.tag + ")") != std::string::npos) return &s;
  }
  return nullptr;
}

// ---- A run, whole or without a line -------------------------------------------------------------

// A line that synchronises, and what it does there.
struct Line {
  std::string op;  // "mbar_wait"
  std::string file;
  int number;

  bool operator<(const Line& other) const {
    return std::tie(file, number, op) < std::tie(other.file, other.number, other.op);
  }
  std::string at() const { return text({file.c_str(), number}); }
  std::string source() const {
    std::ifstream in(FA3_SOURCE_DIR + file.substr(file.rfind("/src/")));
    std::string line;
    for (int i = 0; i < number; ++i) std::getline(in, line);
    return line;
  }
};

class FwdMutations : public testing::TestWithParam<Mutated> {
 protected:
  FwdMutations() : attention_(runtime_, GetParam().problem, GetParam().config) {}

  // All lines that the kernel synchronises in; its outputs are kept as the right ones.
  std::set<Line> lines() {
    std::set<Line> all;
    runtime_.device.options.omit = [&](const char* op, Where where) {
      all.insert({op, where.file, where.line});
      return false;
    };
    attention_.run();
    right_ = attention_.bits();
    return all;
  }
  // How the loss of a line is noticed: the report of a broken rule; "" = not at all.
  std::string noticed(const Line& line, u64 seeds) {
    runtime_.device.options.omit = [&](const char* op, Where where) {
      return line.number == where.line && line.op == op && line.file == where.file;
    };
    for (u64 seed = 0; seed < seeds; ++seed) {
      runtime_.device.options.seed = seed;
      try {
        attention_.run();
      } catch (const Violation& violation) {
        return violation.what();
      }
      if (attention_.bits() != right_) return "another result";
    }
    return "";
  }

  TestRuntime runtime_;
  FwdRun attention_;
  std::vector<unsigned char> right_;
};

TEST_P(FwdMutations, EveryLineIsMissed) {
  if (kSanitized && std::strcmp(GetParam().name, "two_stages") != 0)
    GTEST_SKIP() << "one kernel is enough for sanitizers, which look at the simulator";
  const std::set<Line> all = lines();
  ASSERT_GE(all.size(), 20u);
  std::set<const Spared*> seen;
  for (const Line& line : all) {
    const std::string source = line.source();
    ASSERT_NE(source, "") << line.at();
    if (const Spared* const s = spared(GetParam().name, source)) {
      seen.insert(s);
      continue;
    }
    const std::string how = noticed(line, kSeeds);
    EXPECT_NE(how, "") << line.op << " at " << line.at() << " may be left out: " << source;
  }
  for (const Spared& s : kSpared) {
    if (s.kernel == nullptr || std::strcmp(s.kernel, GetParam().name) != 0) continue;
    EXPECT_EQ(seen.count(&s), 1u) << "no line has this tag any more: " << s.tag;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, FwdMutations, testing::ValuesIn(kernels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fa3::sim
