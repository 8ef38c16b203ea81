// SPDX-License-Identifier: BSD-3-Clause
// launch.cpp — what a prepared run costs the host on a GPU: microseconds from the call of
// fa3_plan_run to its return, for problems so small that the GPU keeps up. Through the C
// interface alone. Prints one JSON line about commit and machine, then one per problem.
//     fa3_launch [--commit "$(bench/machine.py)"] [ROUNDS]
//     fa3_launch [--commit …] --meta SUITE       only the first line, of another suite
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "gpu_meta.h"

namespace {

// The four calls of the driver that this needs.
struct Driver {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  template <class... Args>
  void call(const char* name, Args... args) const {
    void* const found = library == nullptr ? nullptr : dlsym(library, name);
    if (found == nullptr) throw std::runtime_error(std::string("no driver with ") + name);
    const int result = reinterpret_cast<int (*)(Args...)>(found)(args...);
    if (result != 0) throw std::runtime_error(std::string(name) + ": " + std::to_string(result));
  }
  void* allocate(size_t bytes) const {
    unsigned long long address = 0;
    call("cuMemAlloc_v2", &address, bytes);
    return reinterpret_cast<void*>(address);
  }
};

void check(fa3_status status) {
  if (status != FA3_OK) throw std::runtime_error(fa3_last_error());
}

fa3_tensor tensor(const Driver& driver, std::vector<int64_t> shape, fa3_dtype dtype = FA3_BF16) {
  int64_t bytes = dtype == FA3_BF16 ? 2 : 4;
  for (const int64_t extent : shape) bytes *= extent;
  const auto rank = static_cast<int32_t>(shape.size());
  return fa3_dense(driver.allocate(static_cast<size_t>(bytes)), dtype, rank, shape.data());
}

fa3_forward_args prompt(const Driver& driver, fa3_mask mask) {
  fa3_forward_args args{};
  args.struct_size = sizeof args;
  for (fa3_tensor* t : {&args.q, &args.k, &args.v, &args.o}) *t = tensor(driver, {1, 128, 4, 128});
  args.mask = mask;
  return args;
}

// One query of each sequence, keys in pages of 16: two kernels.
fa3_forward_args decode(const Driver& driver) {
  constexpr int64_t kBatch = 2, kPages = 16;
  fa3_forward_args args{};
  args.struct_size = sizeof args;
  for (fa3_tensor* t : {&args.q, &args.o}) *t = tensor(driver, {kBatch, 1, 8, 128});
  for (fa3_tensor* t : {&args.k, &args.v}) *t = tensor(driver, {kBatch * kPages, 16, 2, 128});
  args.page_table = tensor(driver, {kBatch, kPages}, FA3_I32);
  args.seqused_kv = tensor(driver, {kBatch}, FA3_I32);
  return args;
}

// The configuration, by its row of fa3's table.
std::string row_of(fa3_context* context, const fa3_forward_args& args) {
  size_t bytes = 0;
  check(fa3_explain(context, FA3_OP_FORWARD, &args, nullptr, 0, &bytes));
  std::string plan(bytes, '\0');
  check(fa3_explain(context, FA3_OP_FORWARD, &args, plan.data(), bytes, nullptr));
  const std::string key = "\"row\": \"";
  const size_t at = plan.find(key);
  if (at == std::string::npos) throw std::runtime_error("no row in " + plan);
  const size_t begin = at + key.size();
  return plan.substr(begin, plan.find('"', begin) - begin);
}

void measure(const Driver& driver, fa3_context* context, const char* name,
             const fa3_forward_args& args, int rounds) {
  constexpr int kRuns = 100;  // in a round, which the driver takes without waiting
  fa3_plan* plan = nullptr;
  check(fa3_plan_forward(context, &args, &plan));
  const size_t bytes = fa3_plan_workspace_bytes(plan);
  void* const workspace = driver.allocate(std::max<size_t>(bytes, 16));
  std::vector<double> us;
  for (int round = 0; round < rounds + 2; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kRuns; ++i) check(fa3_plan_run(plan, &args, workspace, bytes, nullptr));
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    driver.call("cuCtxSynchronize");
    if (round >= 2) us.push_back(taken.count() / kRuns);
  }
  std::sort(us.begin(), us.end());
  std::printf(
      "{\"kind\": \"cell\", \"cell\": \"launch_%s\", \"row\": \"%s\", \"workspace_bytes\": %zu, "
      "\"rounds\": %d, \"us_median\": %.2f, \"us_p10\": %.2f, \"us_p90\": %.2f}\n",
      name, row_of(context, args).c_str(), bytes, rounds, us[us.size() / 2], us[us.size() / 10],
      us[us.size() * 9 / 10]);
  fa3_plan_destroy(plan);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string other = fa3::bench::take_option(argc, argv, "--meta", "");
    const std::string commit = fa3::bench::take_commit(argc, argv);
    const int rounds = std::max(argc > 1 ? std::atoi(argv[1]) : 50, 1);
    const Driver driver;
    driver.call("cuInit", 0u);
    void* device_context = nullptr;
    driver.call("cuDevicePrimaryCtxRetain", &device_context, 0);
    driver.call("cuCtxSetCurrent", device_context);
    fa3_context_options options{};
    options.struct_size = sizeof options;
    options.device_type = FA3_DEVICE_CUDA;
    fa3_context* context = nullptr;
    check(fa3_context_create(&options, &context));
    fa3_device_info device{};
    device.struct_size = sizeof device;
    check(fa3_get_device_info(context, &device));
    const std::string suite = other.empty() ? "launch" : other;
    std::printf("%s\n", fa3::bench::meta_line(suite, commit, device.name, fa3_version()).c_str());
    if (other.empty()) {
      measure(driver, context, "full", prompt(driver, FA3_MASK_FULL), rounds);
      measure(driver, context, "causal", prompt(driver, FA3_MASK_CAUSAL), rounds);
      measure(driver, context, "decode", decode(driver), rounds);
    }
    fa3_context_destroy(context);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fa3_launch: %s\n", error.what());
    return 1;
  }
}
