// SPDX-License-Identifier: BSD-3-Clause
// tune_fwd.cpp — fa3_tune_fwd: times variants of the forward kernel on a Hopper GPU. Reads lines
//     d=128 mask=causal seqlen=8192 | tile_kv=128 stages=2 o_in_q=1
// (a problem, and the fields of the planned configuration to change), writes one JSON object a
// line: first commit and machine, then of each case the planned row, TFLOP/s and the greatest
// difference to the output of the problem's first case. Needs nothing but the driver and NVRTC, so
// that it can be copied to another machine.
//     fa3_tune_fwd [--commit "$(bench/machine.py)"] [--suite fwd-tuning] CASES [REPEATS]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "backend/cuda/runtime.h"
#include "backend/launch/launch.h"
#include "core/dtype.h"
#include "device/attn/kv_range.h"
#include "gpu_meta.h"
#include "plan/sm90/fwd_configs.h"
#include "plan/sm90/fwd_names.h"
#include "plan/sm90/fwd_plan.h"

namespace fa3::sm90 {
namespace {

using Fields = std::map<std::string, std::string>;

Fields fields_of(const std::string& text) {
  Fields fields;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    const size_t at = word.find('=');
    if (at == std::string::npos) throw std::runtime_error("need name=value, got " + word);
    fields[word.substr(0, at)] = word.substr(at + 1);
  }
  return fields;
}

int64_t number(const Fields& fields, const char* name, int64_t otherwise) {
  const auto found = fields.find(name);
  return found == fields.end() ? otherwise : std::stoll(found->second);
}

Problem problem_of(const Fields& f) {
  Problem p;
  const fa3_dtype dtype = f.count("f16") ? FA3_F16 : FA3_BF16;
  p.head_dim_qk = number(f, "d", 128);
  p.head_dim_v = number(f, "dv", p.head_dim_qk);
  const int64_t seqlen = number(f, "seqlen", 8192);
  p.heads_q = number(f, "heads", 2048 / p.head_dim_qk);
  p.heads_kv = number(f, "heads_kv", p.heads_q);
  p.batch = number(f, "batch", std::max<int64_t>(1, 16384 / seqlen));
  p.q.rows = p.q.max_seqlen = seqlen;
  p.kv.rows = p.kv.max_seqlen = number(f, "seqlen_kv", seqlen);
  if (f.count("mask") && f.at("mask") == "causal") p.mask = FA3_MASK_CAUSAL;
  if (f.count("left")) {
    p.mask = FA3_MASK_WINDOW;
    p.left = number(f, "left", 0), p.right = number(f, "right", 0);
  }
  p.softmax_scale = 1 / std::sqrt(static_cast<double>(p.head_dim_qk));
  const auto layout = [&](TensorId id, int64_t rows, int64_t heads, int64_t d) {
    p.layout[id] = {dtype, rows * heads * d, heads * d, d};
  };
  layout(kQ, p.q.rows, p.heads_q, p.head_dim_qk);
  layout(kK, p.kv.rows, p.heads_kv, p.head_dim_qk);
  layout(kV, p.kv.rows, p.heads_kv, p.head_dim_v);
  layout(kO, p.q.rows, p.heads_q, p.head_dim_v);
  p.layout[kLse] = {FA3_F32, p.heads_q * p.q.rows, 1, p.q.rows};
  return p;
}

double flops_of(const Problem& p) {
  double pairs = static_cast<double>(p.q.rows) * static_cast<double>(p.kv.rows);
  if (p.mask != FA3_MASK_FULL) {
    pairs = 0;
    Band band{Band::kUnbounded, 0};
    if (p.mask == FA3_MASK_WINDOW) band = {p.left, p.right};
    for (int64_t i = 0; i < p.q.rows; ++i)
      pairs += static_cast<double>(visible_keys(band, {p.q.rows, p.kv.rows}, i).size());
  }
  return 2 * pairs * static_cast<double>(p.batch * p.heads_q * (p.head_dim_qk + p.head_dim_v));
}

template <class E>
E enumerator(const std::string& field, const std::string& text) {
  for (const auto& name : names_of(E{})) {
    if (name.word == text) return name.value;
  }
  throw std::runtime_error(field + "=" + text + ": no such value");
}

// A field of FwdConfig or of its SoftmaxVariant by its name; enumerators by their words.
template <class Config>
void set_fields(Config& config, const Fields& f) {
  for_each_field(config, [&](const char* name, auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_same_v<Field, SoftmaxVariant>) {
      set_fields(field, f);
    } else if (const auto found = f.find(name); found != f.end()) {
      if constexpr (std::is_enum_v<Field>) {
        field = enumerator<Field>(name, found->second);
      } else {
        field = static_cast<Field>(std::stoi(found->second));
      }
    }
  });
}

// Throws with the limit that a configuration breaks.
void change(FwdPlan& plan, const Fields& f, const Problem& p, int sms) {
  FwdConfig c = plan.config;
  set_fields(c, f);
  plan.order.head_group = static_cast<u32>(number(f, "head_group", plan.order.head_group));
  plan.order.longest_first = number(f, "longest_first", plan.order.longest_first) != 0;
  if (const char* why = why_illegal(c)) throw std::runtime_error(why);
  plan = with_config(plan, c, p, sms);
}

struct Tensors {
  Tensors(cuda::CudaRuntime& machine, const Problem& p) : machine(machine) {
    const auto count = [&](TensorId id, int64_t rows) {
      return static_cast<size_t>(p.batch * p.layout[id].batch) * (rows > 0);
    };
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    std::vector<u16> pattern(1048573);
    for (u16& x : pattern)
      x = p.layout[kQ].dtype == FA3_F16 ? from_double<F16>(normal(random)).bits
                                        : from_double<Bf16>(normal(random)).bits;
    for (const TensorId id : {kQ, kK, kV, kO}) {
      const size_t n = count(id, 1);
      x.data[id] = machine.allocate(2 * n, "tensor");
      std::vector<u16> values(n);
      for (size_t i = 0; i < n; ++i) values[i] = pattern[(i + 1000 * id) % pattern.size()];
      machine.upload(x.data[id], values.data(), 2 * n);
    }
    x.data[kLse] = machine.allocate(4 * count(kLse, 1), "lse");
    workspace = machine.allocate(64, "workspace");
    o_count = count(kO, 1);
  }
  ~Tensors() {
    for (void* data : x.data) machine.release(data);
    machine.release(workspace);
  }
  std::vector<float> o(fa3_dtype type) {
    std::vector<u16> bits(o_count);
    machine.download(bits.data(), x.data[kO], 2 * o_count);
    std::vector<float> out(o_count);
    for (size_t i = 0; i < o_count; ++i)
      out[i] = type == FA3_F16 ? to_float(F16{bits[i]}) : to_float(Bf16{bits[i]});
    return out;
  }
  void poison() {
    std::vector<u16> bits(o_count, 0x7FFF);
    machine.upload(x.data[kO], bits.data(), 2 * o_count);
  }

  cuda::CudaRuntime& machine;
  Buffers x;
  void* workspace;
  size_t o_count;
};

double median_ms(cuda::CudaRuntime& machine, const Problem& p, const FwdPlan& plan, Tensors& t,
                 int repeats) {
  const auto run = [&] {
    const Status status =
        launch({step_of(plan, 0)}, machine, {}, p, t.x, static_cast<std::byte*>(t.workspace));
    if (!status.ok()) throw std::runtime_error(status.message);
  };
  for (int i = 0; i < 3; ++i) run();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const cuda::Event begin = machine.record();
    for (int k = 0; k < 4; ++k) run();
    const cuda::Event end = machine.record();
    times.push_back(end.milliseconds_since(begin) / 4);
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<size_t>(repeats / 2)];
}

int main_of(const std::string& suite, const std::string& commit, const char* file, int repeats) {
  const auto driver = cuda::Driver::system();
  if (!driver.ok()) throw std::runtime_error(driver.status().message);
  cuda::JitOptions options;
  options.driver_version = driver.value()->version();
  cuda::Jit jit(options);
  auto opened = cuda::CudaRuntime::open(*driver.value(), jit, 0);
  if (!opened.ok()) throw std::runtime_error(opened.status().message);
  cuda::CudaRuntime& machine = *opened.value();
  DeviceInfo device;
  device.type = FA3_DEVICE_CUDA;
  device.backend = FA3_BACKEND_CUDA;
  device.multiprocessors = machine.gpu().sm_count;
  device.l2_bytes = machine.gpu().l2_bytes;
  std::ifstream in(file);
  std::printf("%s\n",
              bench::meta_line(suite, commit, machine.gpu().name, FA3_BUILD_VERSION).c_str());
  std::fflush(stdout);
  std::string last;
  std::unique_ptr<Tensors> tensors;
  std::vector<float> first;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t bar = line.find('|');
    const std::string problem_text = line.substr(0, bar);
    const Problem p = problem_of(fields_of(problem_text));
    const Fields changes = fields_of(bar == std::string::npos ? "" : line.substr(bar + 1));
    auto plan = make_fwd_plan(p, device);
    if (!plan.ok()) throw std::runtime_error(plan.status().message);
    const bool fresh = problem_text != last;
    if (fresh) {
      tensors.reset();
      tensors = std::make_unique<Tensors>(machine, p);
      last = problem_text;
    }
    std::string note;
    double tflops = 0, difference = 0;
    try {
      change(plan.value(), changes, p, machine.gpu().sm_count);
      tensors->poison();
      const double ms = median_ms(machine, p, plan.value(), *tensors, repeats);
      tflops = flops_of(p) / ms * 1e-9;
      std::vector<float> o = tensors->o(p.layout[kO].dtype);
      if (fresh) first = o;
      for (size_t i = 0; i < o.size(); ++i) {
        const double apart = std::fabs(o[i] - first[i]);
        if (!(apart <= difference)) difference = apart;
      }
    } catch (const std::exception& error) {
      note = error.what();
    }
    std::printf(
        "{\"kind\": \"cell\", \"case\": \"%s\", \"row\": \"%s\", \"tflops\": %.1f, "
        "\"difference\": %.3g, \"note\": \"%s\"}\n",
        line.c_str(), plan.value().row, tflops, difference, note.substr(0, 300).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace fa3::sm90

int main(int argc, char** argv) {
  const std::string suite = fa3::bench::take_option(argc, argv, "--suite", "fwd-tuning");
  const std::string commit = fa3::bench::take_commit(argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "usage: fa3_tune_fwd [--commit COMMIT] [--suite SUITE] CASES [REPEATS]\n");
    return 2;
  }
  try {
    return fa3::sm90::main_of(suite, commit, argv[1], argc > 2 ? std::atoi(argv[2]) : 9);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fa3_tune_fwd: %s\n", error.what());
    return 1;
  }
}
