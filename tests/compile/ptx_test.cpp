// SPDX-License-Identifier: BSD-3-Clause
// Each function of src/device/ptx becomes the instruction that it is named after, in code that
// ptxas accepts for sm_90a.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "backend/cuda/device_headers.h"
#include "tests/compile/probes.h"
#include "tests/kit/nvrtc.h"

namespace fa3 {
namespace {

// Functions that the headers in ptx/ declare, each with the comment above it.
struct Declared {
  std::string path, name, comment;
};
std::vector<Declared> declared() {
  std::vector<Declared> all;
  const std::regex function(
      R"(((?:^//.*\n)*)(?:^template <.*\n)?^FA3_DEV (?:[\w<>,:&* ]+ )?[&*]?(\w+)\()",
      std::regex::multiline);
  for (const DeviceHeader& header : cuda::device_headers().headers) {
    const std::string path = header.path, text = header.text;
    if (!path.starts_with("device/ptx/") || path.ends_with("wgmma_shapes.h")) continue;
    for (std::sregex_iterator i(text.begin(), text.end(), function), end; i != end; ++i) {
      all.push_back({path, (*i)[2], (*i)[1]});
    }
  }
  return all;
}

TEST(PtxHeaders, EveryFunctionHasAProbe) {
  std::set<std::string> in_headers, probed;
  for (const Declared& function : declared()) in_headers.insert(function.name);
  for (const kit::Probe& probe : kit::ptx_probes()) probed.insert(probe.function);
  EXPECT_EQ(probed, in_headers) << "tests/compile/probes.cpp and src/device/ptx differ";
}

TEST(PtxHeaders, EveryFunctionNamesItsSection) {
  const std::regex section(R"(\(\d+\.\d+)");
  for (const Declared& function : declared()) {
    // Not instructions: fence_regs.
    if (function.name == "fence_regs") continue;
    EXPECT_TRUE(std::regex_search(function.comment, section) || function.name == "lane_index")
        << function.path << ": " << function.name << " lacks `mnemonic (section)` above it";
  }
}

TEST(PtxHeaders, ProbesContainTheirInstructions) {
  const std::vector<kit::Probe> probes = kit::ptx_probes();
  const std::string ptx = kit::translate(kit::probe_source(probes)).ptx;
  for (size_t i = 0; i < probes.size(); ++i) {
    const size_t begin = ptx.find(".entry probe_" + std::to_string(i) + "(");
    ASSERT_NE(begin, std::string::npos) << probes[i].call;
    const std::string body = ptx.substr(begin, ptx.find(".visible .entry", begin) - begin);
    for (const std::string& instruction : probes[i].instructions) {
      EXPECT_THAT(body, testing::HasSubstr(instruction)) << probes[i].call;
    }
  }
}

}  // namespace
}  // namespace fa3
