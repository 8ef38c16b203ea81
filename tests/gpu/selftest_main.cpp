// SPDX-License-Identifier: BSD-3-Clause
// selftest_main.cpp — fa3_selftest_gpu: the conformance cases on a GPU or in the simulator, without
// libfa3 and what it needs; --compile compiles all programs and needs no GPU.
#include <fmt/core.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/runtime.h"
#include "backend/sim/runtime.h"
#include "conformance/cases/cases.h"
#include "conformance/cases/run.h"
#include "conformance/measure/measure.h"
#include "conformance/measure/numerics.h"
#include "tools/cli/child_process.h"

namespace fa3::selftest {
namespace {

constexpr const char* kUsage =
    "usage: fa3_selftest_gpu [--backend cuda|sim] [--filter REGEX] [--seed N] [--verbose]\n"
    "                        [--list | --compile | --measure | --dump DIR]\n"
    "  --list      print the names of the cases\n"
    "  --compile   compile all programs; needs no GPU; --verbose prints registers\n"
    "  --measure   print what PTX leaves open, as JSON\n"
    "  --dump DIR  write single steps of wgmma on values of all sizes to files\n"
    "  --verbose   a line for each case, not only for those that fail\n";

enum class Task { kRun, kList, kCompile, kMeasure, kDump };

struct Options {
  std::string backend = "cuda";
  std::string filter;
  std::string directory;
  uint64_t seed = 1;
  bool verbose = false;
  Task task = Task::kRun;
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
    } else if (arg == "--dump" && has_value) {
      options.task = Task::kDump;
      options.directory = argv[++i];
    } else if (arg == "--measure") {
      options.task = Task::kMeasure;
    } else if (arg == "--list") {
      options.task = Task::kList;
    } else if (arg == "--compile") {
      options.task = Task::kCompile;
    } else if (arg == "--verbose") {
      options.verbose = true;
    } else {
      return false;
    }
  }
  return options.backend == "cuda" || options.backend == "sim";
}

// The cases of --filter.
std::vector<Case> cases_of(const Options& options) {
  Result<std::vector<Case>> chosen = chosen_cases(options.filter);
  if (!chosen.ok()) throw Error(chosen.status().code, chosen.status().message);
  return std::move(chosen).value();
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
  std::vector<Program> programs = programs_of(cases_of(options));
  for (Program& program : measuring_programs()) programs.push_back(std::move(program));
  std::mutex mutex;
  size_t failed = 0;
  const std::regex advisory("C75[0-9][0-9]|[1-9][0-9]* bytes spill");
  in_parallel(programs.size(), [&](size_t i) {
    const Result<cuda::Compiled> compiled =
        nvrtc.value().compile(programs[i], cuda::device_headers().headers);
    const std::string log = compiled.ok() ? compiled.value().log : compiled.status().message;
    const bool bad = !compiled.ok() || std::regex_search(log, advisory);
    const std::lock_guard lock(mutex);
    failed += bad ? 1 : 0;
    if (bad || options.verbose) fmt::print("{}\n{}\n", programs[i].expression, log);
  });
  fmt::print("{} programs, {} failed\n", programs.size(), failed);
  return failed == 0 ? 0 : 1;
}

int refuse(const Status& status) {
  fmt::print(stderr, "{}\n", status.message);
  return 1;
}

// ---- Cases --------------------------------------------------------------------------------------

// The progress of a run of cases.
struct Progress {
  size_t done = 0, failed = 0;
  bool lost = false;  // by the last case that was done
};

// Runs the cases from progress.done on, until the end or until the device is lost. `report` is
// called after each.
template <class Report>
void run_cases(GpuRuntime& runtime, const std::vector<Case>& cases, const Options& options,
               Progress& progress, const Report& report) {
  while (progress.done < cases.size() && !progress.lost) {
    const Case& test = cases[progress.done];
    if (options.verbose) {
      fmt::print("{} ...", test.name);
      std::fflush(stdout);
    }
    const Outcome outcome = run_case(runtime, test, options.seed);
    ++progress.done;
    progress.failed += outcome.passed ? 0 : 1;
    progress.lost = outcome.device_lost;
    if (options.verbose) {
      fmt::print(" {}", outcome.passed ? "passed" : "FAILED: " + outcome.message);
      if (outcome.max_error_ratio > 0) fmt::print(" ({:.3g} of bound)", outcome.max_error_ratio);
      fmt::print("\n");
    } else if (!outcome.passed) {
      fmt::print("{} FAILED: {}\n", test.name, outcome.message);
    }
    if (outcome.device_lost) fmt::print("context lost after case {}\n", test.name);
    std::fflush(stdout);
    report();
  }
}

int conclude(const std::string& runtime, const Progress& progress, size_t cases) {
  fmt::print("{}: {} of {} cases run, {} failed\n", runtime, progress.done, cases, progress.failed);
  return progress.failed == 0 && progress.done == cases ? 0 : 1;
}

// ---- On a GPU -----------------------------------------------------------------------------------

struct Gpu {
  const cuda::Driver* driver;
  std::unique_ptr<cuda::Jit> jit;
  std::unique_ptr<cuda::CudaRuntime> runtime;
};

// With all programs in the cache. A program that does not compile is reported where it is used.
Result<Gpu> open_gpu(const std::vector<Program>& programs) {
  FA3_TRY(const cuda::Driver* const driver, cuda::Driver::system());
  cuda::JitOptions jit_options;
  jit_options.driver_version = driver->version();
  auto jit = std::make_unique<cuda::Jit>(jit_options);
  FA3_TRY(auto runtime, cuda::CudaRuntime::open(*driver, *jit, 0));
  in_parallel(programs.size(), [&](size_t i) { static_cast<void>(jit->get(programs[i]).ok()); });
  return Gpu{driver, std::move(jit), std::move(runtime)};
}

// The child's part: CUDA begins and ends here. A line is a Progress.
void run_in_child(const std::vector<Case>& cases, const Options& options, Progress progress,
                  const cli::Send& send) {
  const Result<Gpu> gpu = open_gpu(programs_of(cases));
  if (!gpu.ok()) throw Error(gpu.status().code, gpu.status().message);
  const auto report = [&] {
    send(fmt::format("{} {} {}", progress.done, progress.failed, progress.lost ? 1 : 0));
  };
  report();
  run_cases(*gpu.value().runtime, cases, options, progress, report);
}

// A kernel's error ends a process's use of the GPU, and a kernel may hang: the cases run in a
// child, and the rest in a new one.
int run_on_gpu(const Options& options) {
  constexpr int kCompileSeconds = 600, kCaseSeconds = 30;
  const std::vector<Case> cases = cases_of(options);
  Progress progress;
  do {
    progress.lost = false;
    bool begun = false;
    const std::string fate = cli::run_in_child(
        {[&](const cli::Send& send) { run_in_child(cases, options, progress, send); },
         [&](const std::string& line) {
           std::istringstream(line) >> progress.done >> progress.failed >> progress.lost;
           begun = true;
         },
         [&] { return begun ? kCaseSeconds : kCompileSeconds; }});
    if (!begun) {
      fmt::print(stderr, "fa3_selftest_gpu: the process {}\n", fate);
      break;
    }
    if (fate.empty() || progress.lost || progress.done == cases.size()) continue;
    fmt::print("{} FAILED: the process {}\n", cases[progress.done].name, fate);
    ++progress.done;
    ++progress.failed;
  } while (progress.done < cases.size());
  return conclude("GPU", progress, cases.size());
}

int measure_gpu() {
  Result<Gpu> opened = open_gpu(measuring_programs());
  if (!opened.ok()) return refuse(opened.status());
  Gpu& gpu = opened.value();
  std::vector<Measurement> results;
  const Status status = measure(*gpu.runtime, results);
  fmt::print("{{\"device\": \"{}\", \"driver\": {},\n \"error\": {},\n \"measurements\": {{",
             gpu.runtime->name(), gpu.driver->version(), nlohmann::json(status.message).dump());
  for (size_t i = 0; i < results.size(); ++i) {
    fmt::print("{}\n  \"{}\": {:.6g}", i == 0 ? "" : ",", results[i].name, results[i].value);
  }
  fmt::print("}}}}\n");
  std::fflush(stdout);
  if (!status.ok()) std::_Exit(1);
  return 0;
}

int dump_gpu(const Options& options) {
  Result<Gpu> opened = open_gpu(numerics_programs());
  if (!opened.ok()) return refuse(opened.status());
  Gpu& gpu = opened.value();
  std::vector<Recording> recordings;
  const Status status = record_numerics(*gpu.runtime, options.seed, recordings);
  std::filesystem::create_directories(options.directory);
  const auto write_file = [&](const std::string& name, const void* bytes, size_t count) {
    std::ofstream file(std::filesystem::path(options.directory) / name, std::ios::binary);
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(count));
    if (!file.flush()) throw Error(FA3_INTERNAL, name + ": not written; is the disk full?");
  };
  const std::string layout = recording_layout();
  write_file("layout.txt", layout.data(), layout.size());
  for (const Recording& recording : recordings) {
    write_file(recording.name + ".bin", recording.bytes.data(), recording.bytes.size());
    fmt::print("{}.bin: {} bytes\n", recording.name, recording.bytes.size());
  }
  return status.ok() ? 0 : refuse(status);
}

// ---- In the simulator ---------------------------------------------------------------------------

int run_in_simulator(const Options& options) {
  sim::SimRuntime::Settings settings;
  settings.seed = options.seed;
  settings.exact_sums = true;
  const auto runtime = sim::SimRuntime::open(settings);
  if (!runtime.ok()) return refuse(runtime.status());
  const std::vector<Case> cases = cases_of(options);
  Progress progress;
  run_cases(*runtime.value(), cases, options, progress, [] {});
  return conclude(runtime.value()->name(), progress, cases.size());
}

int list(const Options& options) {
  for (const Case& test : cases_of(options)) fmt::print("{}\n", test.name);
  return 0;
}

int perform(const Options& options) {
  switch (options.task) {
    case Task::kList:
      return list(options);
    case Task::kCompile:
      return compile_only(options);
    case Task::kMeasure:
      return measure_gpu();
    case Task::kDump:
      return dump_gpu(options);
    case Task::kRun:
      break;
  }
  return options.backend == "sim" ? run_in_simulator(options) : run_on_gpu(options);
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
    return perform(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "fa3_selftest_gpu: {}\n", e.what());
    return 1;
  }
}
