// SPDX-License-Identifier: BSD-3-Clause
// selftest_main.cpp — fa3_selftest_gpu: the conformance cases on a GPU or in the simulator, without
// libfa3 and what it needs; --compile compiles all programs and needs no GPU.
#include <fmt/core.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/machine.h"
#include "backend/sim/machine.h"
#include "selftest/cases.h"
#include "selftest/run.h"

namespace fa3::selftest {
namespace {

constexpr const char* kUsage =
    "usage: fa3_selftest_gpu [--backend cuda|sim] [--filter REGEX] [--seed N] [--verbose]\n"
    "                        [--list | --compile]\n"
    "  --list     print the names of the cases\n"
    "  --compile  compile their programs only; needs no GPU; --verbose prints registers\n"
    "  --verbose  a line for each case, not only for those that fail\n";

struct Options {
  std::string backend = "cuda";
  std::string filter;
  uint64_t seed = 1;
  bool verbose = false, list = false, compile = false;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool has_value = i + 1 < argc;
    if (arg == "--backend" && has_value) {
      options.backend = argv[++i];
    } else if (arg == "--filter" && has_value) {
      options.filter = argv[++i];
    } else if (arg == "--seed" && has_value) {
      options.seed = std::stoull(argv[++i]);
    } else if (arg == "--verbose") {
      options.verbose = true;
    } else if (arg == "--list") {
      options.list = true;
    } else if (arg == "--compile") {
      options.compile = true;
    } else {
      return false;
    }
  }
  return options.backend == "cuda" || options.backend == "sim";
}

std::vector<Case> chosen_cases(const std::string& filter) {
  const std::regex pattern(filter);
  std::vector<Case> chosen;
  for (Case& test : all_cases()) {
    if (std::regex_search(test.name, pattern)) chosen.push_back(std::move(test));
  }
  return chosen;
}

std::vector<Program> programs_of(const std::vector<Case>& cases) {
  std::map<std::string, Program> programs;
  for (const Case& test : cases) programs.emplace(test.program.expression, test.program);
  std::vector<Program> list;
  for (auto& [name, program] : programs) list.push_back(program);
  return list;
}

// Calls work(i) for each i below `count`, on all cores.
template <class Work>
void in_parallel(size_t count, const Work& work) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (size_t i = next++; i < count; i = next++) work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Programs whose log has an advisory of ptxas (C75xx) or a spill count as failed.
int compile_only(const Options& options) {
  const Result<cuda::Nvrtc> nvrtc = cuda::find_nvrtc(cuda::nvrtc_places(), 0);
  if (!nvrtc.ok()) {
    fmt::print(stderr, "{}\n", nvrtc.status().message);
    return 1;
  }
  const std::vector<Program> programs = programs_of(chosen_cases(options.filter));
  std::mutex mutex;
  size_t failed = 0;
  const std::regex advisory("C75[0-9][0-9]|[1-9][0-9]* bytes spill");
  in_parallel(programs.size(), [&](size_t i) {
    const Result<cuda::Compiled> compiled =
        nvrtc.value().compile(programs[i], cuda::device_headers());
    const std::string log = compiled.ok() ? compiled.value().log : compiled.status().message;
    const bool bad = !compiled.ok() || std::regex_search(log, advisory);
    const std::lock_guard lock(mutex);
    failed += bad ? 1 : 0;
    if (bad || options.verbose) fmt::print("{}\n{}\n", programs[i].expression, log);
  });
  fmt::print("{} programs, {} failed\n", programs.size(), failed);
  return failed == 0 ? 0 : 1;
}

int run_all(Machine& machine, const std::vector<Case>& cases, const Options& options) {
  size_t failed = 0, done = 0;
  for (const Case& test : cases) {
    if (options.verbose) {
      fmt::print("{} ...", test.name);
      std::fflush(stdout);
    }
    const Outcome outcome = run_case(machine, test, options.seed);
    ++done;
    failed += outcome.passed ? 0 : 1;
    if (options.verbose) {
      fmt::print(" {}", outcome.passed ? "passed" : "FAILED: " + outcome.message);
      if (outcome.max_error_ratio > 0) fmt::print(" ({:.3g} of bound)", outcome.max_error_ratio);
      fmt::print("\n");
    } else if (!outcome.passed) {
      fmt::print("{} FAILED: {}\n", test.name, outcome.message);
    }
    std::fflush(stdout);
    if (outcome.device_lost) break;
  }
  fmt::print("{}: {} of {} cases run, {} failed\n", machine.name(), done, cases.size(), failed);
  return failed == 0 && done == cases.size() ? 0 : 1;
}

int refuse(const Status& status) {
  fmt::print(stderr, "{}\n", status.message);
  return 1;
}

int run_on_gpu(const Options& options) {
  const Result<const cuda::Driver*> driver = cuda::Driver::system();
  if (!driver.ok()) return refuse(driver.status());
  cuda::JitOptions jit_options;
  jit_options.driver_version = driver.value()->version();
  cuda::Jit jit(jit_options, cuda::device_headers(), cuda::device_headers_hash());
  const auto machine = cuda::CudaMachine::open(*driver.value(), jit, 0);
  if (!machine.ok()) return refuse(machine.status());
  const std::vector<Case> cases = chosen_cases(options.filter);
  const std::vector<Program> programs = programs_of(cases);
  in_parallel(programs.size(), [&](size_t i) {
    // What does not compile is reported by its cases.
    static_cast<void>(jit.get(programs[i]).ok());
  });
  return run_all(*machine.value(), cases, options);
}

int run_in_simulator(const Options& options) {
  sim::SimMachine::Settings settings;
  settings.seed = options.seed;
  const auto machine = sim::SimMachine::open(settings);
  if (!machine.ok()) return refuse(machine.status());
  return run_all(*machine.value(), chosen_cases(options.filter), options);
}

int list(const Options& options) {
  for (const Case& test : chosen_cases(options.filter)) fmt::print("{}\n", test.name);
  return 0;
}

}  // namespace
}  // namespace fa3::selftest

int main(int argc, char** argv) {
  using namespace fa3::selftest;
  Options options;
  try {
    if (!parse(argc, argv, options)) {
      fmt::print(stderr, "{}", kUsage);
      return 2;
    }
    if (options.list) return list(options);
    if (options.compile) return compile_only(options);
    return options.backend == "sim" ? run_in_simulator(options) : run_on_gpu(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "fa3_selftest_gpu: {}\n", e.what());
    return 1;
  }
}
