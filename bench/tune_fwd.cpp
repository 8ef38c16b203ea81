// SPDX-License-Identifier: BSD-3-Clause
// tune_fwd.cpp — fa3_tune_fwd: measures variants of the forward kernel in turns on a Hopper GPU.
// Reads lines
//     d=128 mask=causal seqlen=8192 | tile.kv=128 tile.stages=2 output.in_q=1
//                                   | head_group=4
// (a problem, and the fields of the planned configuration to change; without a problem, another
// variant of the last one; lengths=log_normal: varlen, of mean seqlen). All variants of a problem
// are measured in turns, the planned one first, and compared with it round by round. Writes one
// JSON object a line: commit and machine, then of each variant the row, TFLOP/s, the ratio to the
// planned one with its spread, a verdict, clock and power, and the greatest difference to the
// planned one's output. Needs nothing but the driver and NVRTC, so that it can be copied to another
// runtime.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/runtime.h"
#include "backend/launch/launch.h"
#include "core/dtype.h"
#include "fwd_case.h"
#include "gpu_meta.h"
#include "plan/sm90/fwd/plan.h"
#include "tools/measure/turns.h"

namespace fa3::sm90 {
namespace {

constexpr const char* kUsage =
    R"text(usage: fa3_tune_fwd [options] CASES
  --commit COMMIT   "$(bench/machine.py)"; without it not a result to publish
  --suite SUITE     in the result's first line (fwd-tuning)
  --rounds N        turns of each problem (11)
  --slice MS        of a variant in a round (14); from 1000 on energy is measured, too
  --warm MS         under load before the first round (2000)
)text";

struct Tensors {
  Tensors(cuda::CudaRuntime& runtime, const FwdCase& made) : runtime(runtime) {
    const Problem& p = made.problem;
    const auto count = [&](TensorId id) {
      const int64_t rows = p.axis_of(id).rows * (p.q.varlen ? 1 : p.batch);
      return static_cast<size_t>(rows * (id == kLse ? p.heads_q : p.layout[id].row));
    };
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    std::vector<u16> pattern(1048573);
    for (u16& x : pattern)
      x = p.layout[kQ].dtype == FA3_F16 ? from_double<F16>(normal(random)).bits
                                        : from_double<Bf16>(normal(random)).bits;
    for (const TensorId id : {kQ, kK, kV, kO}) {
      const size_t n = count(id);
      x.data[id] = runtime.allocate(2 * n, "tensor");
      std::vector<u16> values(n);
      for (size_t i = 0; i < n; ++i) values[i] = pattern[(i + 1000 * id) % pattern.size()];
      runtime.upload(x.data[id], values.data(), 2 * n);
    }
    x.data[kLse] = runtime.allocate(4 * count(kLse), "lse");
    if (const size_t bytes = sizeof(int32_t) * made.cu_seqlens.size(); bytes > 0) {
      x.data[kCuSeqlensQ] = runtime.allocate(bytes, "cu_seqlens");
      runtime.upload(x.data[kCuSeqlensQ], made.cu_seqlens.data(), bytes);
      x.data[kCuSeqlensKv] = x.data[kCuSeqlensQ];
    }
    workspace = runtime.allocate(64, "workspace");
    o_count = count(kO);
  }
  ~Tensors() {
    x.data[kCuSeqlensKv] = nullptr;  // the same as q's
    for (void* data : x.data) runtime.release(data);
    runtime.release(workspace);
  }
  std::vector<float> o(fa3_dtype type) {
    std::vector<u16> bits(o_count);
    runtime.download(bits.data(), x.data[kO], 2 * o_count);
    std::vector<float> out(o_count);
    for (size_t i = 0; i < o_count; ++i)
      out[i] = type == FA3_F16 ? to_float(F16{bits[i]}) : to_float(Bf16{bits[i]});
    return out;
  }
  void poison() {
    std::vector<u16> bits(o_count, 0x7FFF);
    runtime.upload(x.data[kO], bits.data(), 2 * o_count);
  }

  cuda::CudaRuntime& runtime;
  Buffers x;
  void* workspace;
  size_t o_count;
};

struct Variant {
  std::string text;
  FwdPlan plan;
  std::string note;  // why it does not run
  double difference = 0;
};

struct Cases {
  std::string problem;
  std::vector<std::string> changes;
};

// In the order of each problem's first line.
std::vector<Cases> read_cases(std::istream& in) {
  std::vector<Cases> all;
  const auto trimmed = [](const std::string& text) {
    const size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
    return first == std::string::npos ? "" : text.substr(first, last - first + 1);
  };
  std::string problem;
  for (std::string line; std::getline(in, line);) {
    if (trimmed(line).empty() || line[0] == '#') continue;
    const size_t bar = std::min(line.find('|'), line.size());
    if (const std::string named = trimmed(line.substr(0, bar)); !named.empty()) problem = named;
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const Cases& cases) { return cases.problem == problem; });
    if (found == all.end()) found = all.insert(all.end(), Cases{problem, {""}});
    const std::string change = bar < line.size() ? trimmed(line.substr(bar + 1)) : "";
    if (!change.empty()) found->changes.push_back(change);
  }
  return all;
}

class Tuner {
 public:
  explicit Tuner(const measure::TurnOptions& options) : options_(options) {
    const auto driver = cuda::Driver::system();
    if (!driver.ok()) throw std::runtime_error(driver.status().message);
    cuda::JitOptions jit;
    jit.driver_version = driver.value()->version();
    jit_ = std::make_unique<cuda::Jit>(jit);
    auto opened = cuda::CudaRuntime::open(*driver.value(), *jit_, 0);
    if (!opened.ok()) throw std::runtime_error(opened.status().message);
    runtime_ = std::move(opened.value());
    device_.type = FA3_DEVICE_CUDA;
    device_.backend = FA3_BACKEND_CUDA;
    device_.multiprocessors = runtime_->gpu().sm_count;
    device_.l2_bytes = runtime_->gpu().l2_bytes;
    nvml_ = measure::Nvml(measure::bus_id_of(runtime_->gpu().device));
  }

  std::string device_name() const { return runtime_->gpu().name; }

  void measure(const Cases& cases) {
    const FwdCase made = case_of(fields_of(cases.problem));
    const Problem& p = made.problem;
    const auto plan = make_fwd_plan(p, device_);
    if (!plan.ok()) throw std::runtime_error(cases.problem + ": " + plan.status().message);
    std::vector<Variant> variants;
    for (const std::string& change : cases.changes) {
      Variant variant{change, plan.value(), "", 0};
      try {
        variant.plan = with_fields(plan.value(), fields_of(change), p, runtime_->gpu().sm_count);
      } catch (const std::exception& error) {
        variant.note = error.what();
      }
      variants.push_back(variant);
    }
    compile(variants);
    if (!variants[0].note.empty()) throw std::runtime_error(variants[0].note);
    Tensors tensors(*runtime_, made);
    compare(p, variants, tensors);
    std::vector<size_t> running;
    for (size_t v = 0; v < variants.size(); ++v)
      if (variants[v].note.empty()) running.push_back(v);
    const auto run = [&](size_t v, int times) {
      return milliseconds(p, variants[running[v]].plan, tensors, times);
    };
    const std::vector<measure::Turns> turns =
        measure::in_turns(running.size(), run, nvml_, options_);
    size_t measured = 0;
    for (const Variant& variant : variants)
      print(cases, flops_of(made), variant,
            variant.note.empty() ? turns[measured++] : measure::Turns());
  }

 private:
  // NVRTC takes seconds a kernel and uses one core.
  void compile(std::vector<Variant>& variants) {
    std::vector<std::thread> threads;
    for (Variant& variant : variants) {
      if (!variant.note.empty()) continue;
      threads.emplace_back([&] {
        const Status status = runtime_->prepare(program_of(variant.plan));
        if (!status.ok()) variant.note = status.message;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  double milliseconds(const Problem& p, const FwdPlan& plan, Tensors& t, int times) {
    const Plan launched = plan_with(p, {plan});
    const cuda::Event begin = runtime_->record();
    for (int i = 0; i < times; ++i) {
      const Status status =
          launch(launched, *runtime_, {}, t.x, static_cast<std::byte*>(t.workspace));
      if (!status.ok()) throw std::runtime_error(status.message);
    }
    const cuda::Event end = runtime_->record();
    return end.milliseconds_since(begin);
  }

  // Outputs of variants with that of the planned one.
  void compare(const Problem& p, std::vector<Variant>& variants, Tensors& tensors) {
    std::vector<float> planned;
    for (Variant& variant : variants) {
      if (!variant.note.empty()) continue;
      tensors.poison();
      milliseconds(p, variant.plan, tensors, 1);
      const std::vector<float> o = tensors.o(p.layout[kQ].dtype);
      if (planned.empty()) planned = o;
      for (size_t i = 0; i < o.size(); ++i) {
        const double apart = std::fabs(o[i] - planned[i]);
        if (std::isnan(variant.difference)) break;
        if (!(apart <= variant.difference)) variant.difference = apart;
      }
    }
  }

  void print(const Cases& cases, double flops, const Variant& variant,
             const measure::Turns& turns) {
    constexpr const char* kVerdicts[] = {"slower", "not different", "faster"};
    const double seconds = turns.ms * 1e-3;
    std::string line = fmt::format("{{\"kind\": \"cell\", \"case\": \"{} | {}\", \"row\": \"{}\"",
                                   cases.problem, variant.text, variant.plan.row);
    if (!variant.note.empty()) {
      line += fmt::format(", \"note\": \"{}\"", variant.note.substr(0, 300));
    } else {
      line += fmt::format(
          ", \"tflops\": {:.1f}, \"ratio\": {:.4f}, \"ratio_low\": {:.4f}, "
          "\"ratio_high\": {:.4f}, \"verdict\": \"{}\", \"mhz\": {:.0f}, \"difference\": {:.3g}",
          flops / seconds * 1e-12, turns.ratio, turns.ratio_low, turns.ratio_high,
          kVerdicts[turns.verdict() + 1], turns.mhz, variant.difference);
      if (turns.joules > 0)
        line += fmt::format(", \"watts\": {:.0f}, \"pj_per_flop\": {:.4f}", turns.joules / seconds,
                            turns.joules / flops * 1e12);
    }
    std::printf("%s}\n", line.c_str());
    std::fflush(stdout);
  }

  measure::TurnOptions options_;
  std::unique_ptr<cuda::Jit> jit_;
  std::unique_ptr<cuda::CudaRuntime> runtime_;
  DeviceInfo device_;
  measure::Nvml nvml_;
};

int main_of(int argc, char** argv) {
  const std::string suite = bench::take_option(argc, argv, "--suite", "fwd-tuning");
  measure::TurnOptions options;
  options.rounds = std::stoi(bench::take_option(argc, argv, "--rounds", "11"));
  options.slice_ms = std::stod(bench::take_option(argc, argv, "--slice", "14"));
  if (options.rounds < 3) throw std::runtime_error("--rounds: at least 3");
  options.warm_ms = std::stod(bench::take_option(argc, argv, "--warm", "2000"));
  const std::string commit = bench::take_commit(argc, argv);
  if (argc != 2) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  std::ifstream in(argv[1]);
  if (!in) throw std::runtime_error(std::string(argv[1]) + ": cannot be read");
  const std::vector<Cases> all = read_cases(in);
  Tuner tuner(options);
  std::printf("%s\n",
              bench::meta_line(suite, commit, tuner.device_name(), FA3_BUILD_VERSION).c_str());
  std::fflush(stdout);
  for (const Cases& cases : all) tuner.measure(cases);
  return 0;
}

}  // namespace
}  // namespace fa3::sm90

int main(int argc, char** argv) {
  try {
    return fa3::sm90::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fa3_tune_fwd: %s\n", error.what());
    return 1;
  }
}
