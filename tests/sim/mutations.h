// SPDX-License-Identifier: BSD-3-Clause
// mutations.h — a kernel without one of its waits, arrivals, fences or barriers, for each in turn:
// the simulator has to report that, or the result has to differ.
#pragma once

#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "sim/kernel_run.h"

namespace fa3::sim {

// A line whose loss goes unnoticed, by the tag sim:spare(…) at its end, for all kernels or for one.
struct Spared {
  const char* kernel;  // nullptr = all
  const char* tag;
  const char* reason;
};

inline const Spared* spared(const std::vector<Spared>& all, const char* kernel,
                            const std::string& source) {
  for (const Spared& s : all) {
    if (s.kernel != nullptr && std::strcmp(s.kernel, kernel) != 0) continue;
    if (source.find(std::string("sim:spare(") + s.tag + ")") != std::string::npos) return &s;
  }
  return nullptr;
}

// A line that synchronises, and what it does there.
struct SyncLine {
  std::string op;  // "mbar_wait"
  std::string file;
  int number;

  bool operator<(const SyncLine& other) const {
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

class Mutations {
 public:
  // `run`: with the same bits under every schedule.
  Mutations(TestRuntime& runtime, KernelRun& run) : options_(runtime.device.options), run_(run) {}

  // `least`: how many lines must be found.
  void expect_every_line_missed(const char* kernel, const std::vector<Spared>& all_spared,
                                size_t least = 20) {
    const std::set<SyncLine> all = lines();
    ASSERT_GE(all.size(), least);
    std::set<const Spared*> seen;
    for (const SyncLine& line : all) {
      const std::string source = line.source();
      ASSERT_NE(source, "") << line.at();
      if (const Spared* const s = spared(all_spared, kernel, source)) {
        seen.insert(s);
        continue;
      }
      EXPECT_NE(noticed(line), "")
          << line.op << " at " << line.at() << " may be left out: " << source;
    }
    for (const Spared& s : all_spared) {
      if (s.kernel == nullptr || std::strcmp(s.kernel, kernel) != 0) continue;
      EXPECT_EQ(seen.count(&s), 1u) << "no line has this tag any more: " << s.tag;
    }
  }

 private:
  // All lines that the kernel synchronises in; its outputs are kept as the right ones.
  std::set<SyncLine> lines() {
    std::set<SyncLine> all;
    options_.omit = [&](const char* op, Where where) {
      all.insert({op, where.file, where.line});
      return false;
    };
    run_.run();
    right_ = run_.bits();
    return all;
  }
  // How the loss of a line is noticed: the report of a broken rule; "" = not at all.
  std::string noticed(const SyncLine& line) {
    options_.omit = [&](const char* op, Where where) {
      return line.number == where.line && line.op == op && line.file == where.file;
    };
    for (u64 seed = 0; seed < kSeeds; ++seed) {
      options_.seed = seed;
      try {
        run_.run();
      } catch (const Violation& violation) {
        return violation.what();
      }
      if (run_.bits() != right_) return "another result";
    }
    return "";
  }

  static constexpr u64 kSeeds = 60;  // schedules to try before a line counts as not missed

  decltype(TestRuntime::device.options)& options_;
  KernelRun& run_;
  std::vector<unsigned char> right_;
};

}  // namespace fa3::sim
