// SPDX-License-Identifier: BSD-3-Clause
// micro.cpp — fa3_micro: what a call costs apart from its arithmetic. Launch overhead on tiny
// problems, bandwidth of decoding against a copy of the same bytes, and what a kept workspace
// saves. Google Benchmark; see --help.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fa3/fa3.h"

namespace {

struct CloseContext {
  void operator()(fa3_context* context) const { fa3_context_destroy(context); }
};
struct ClosePlan {
  void operator()(fa3_plan* plan) const { fa3_plan_destroy(plan); }
};
using Context = std::unique_ptr<fa3_context, CloseContext>;
using Plan = std::unique_ptr<fa3_plan, ClosePlan>;

size_t element_bytes(fa3_dtype dtype) { return dtype == FA3_F32 ? 4 : 2; }

fa3_tensor tensor(void* data, fa3_dtype dtype, int64_t rows, int64_t heads, int64_t head_dim) {
  const int64_t shape[] = {1, rows, heads, head_dim};
  return fa3_dense(data, dtype, 4, shape);
}

// A forward problem of one batch entry with its memory, filled with ones: values do not matter
// here.
class Forward {
 public:
  Forward(fa3_dtype dtype, int64_t seqlen_q, int64_t seqlen_kv, int64_t heads_q, int64_t heads_kv,
          int64_t head_dim)
      : q_(bytes(dtype, seqlen_q * heads_q * head_dim)),
        k_(bytes(dtype, seqlen_kv * heads_kv * head_dim)),
        v_(k_.size()),
        o_(q_.size()) {
    for (auto* memory : {&q_, &k_, &v_}) fill_with_ones(*memory, dtype);
    args_.struct_size = sizeof(args_);
    args_.q = tensor(q_.data(), dtype, seqlen_q, heads_q, head_dim);
    args_.k = tensor(k_.data(), dtype, seqlen_kv, heads_kv, head_dim);
    args_.v = tensor(v_.data(), dtype, seqlen_kv, heads_kv, head_dim);
    args_.o = tensor(o_.data(), dtype, seqlen_q, heads_q, head_dim);
    args_.mask = seqlen_q > 1 ? FA3_MASK_CAUSAL : FA3_MASK_FULL;
  }
  Forward(const Forward&) = delete;  // args_ points into the other members
  Forward& operator=(const Forward&) = delete;

  const fa3_forward_args& args() const { return args_; }
  int64_t kv_bytes() const { return static_cast<int64_t>(k_.size() + v_.size()); }

 private:
  static size_t bytes(fa3_dtype dtype, int64_t elements) {
    return element_bytes(dtype) * static_cast<size_t>(elements);
  }
  static void fill_with_ones(std::vector<std::byte>& memory, fa3_dtype dtype) {
    const float one_f32 = 1.0f;
    const uint16_t one_bf16 = 0x3f80;
    const size_t size = element_bytes(dtype);
    const void* one = dtype == FA3_F32 ? static_cast<const void*>(&one_f32) : &one_bf16;
    for (size_t at = 0; at < memory.size(); at += size) std::memcpy(&memory[at], one, size);
  }

  std::vector<std::byte> q_, k_, v_, o_;
  fa3_forward_args args_{};
};

// False, with the library's message shown as the benchmark's error, when a call failed.
bool ok(benchmark::State& state, fa3_status status) {
  if (status == FA3_OK) return true;
  state.SkipWithError(fa3_last_error());
  return false;
}

Context open_context(benchmark::State& state, int threads) {
  fa3_context_options options{};
  options.struct_size = sizeof(options);
  options.num_threads = threads;
  fa3_context* context = nullptr;
  ok(state, fa3_context_create(&options, &context));
  return Context(context);
}

Plan make_plan(benchmark::State& state, const Context& context, const Forward& problem) {
  fa3_plan* plan = nullptr;
  if (context) ok(state, fa3_plan_forward(context.get(), &problem.args(), &plan));
  return Plan(plan);
}

// ---- Launch overhead: seqlen × seqlen, 1 head, head dim 64, f32

// fa3_forward: arguments checked and planned in every call.
void PlanAndRun(benchmark::State& state) {
  const int64_t seqlen = state.range(0);
  const Forward problem(FA3_F32, seqlen, seqlen, 1, 1, 64);
  const Context context = open_context(state, static_cast<int>(state.range(1)));
  for (auto _ : state) {
    if (!context || !ok(state, fa3_forward(context.get(), &problem.args(), nullptr))) break;
  }
}
BENCHMARK(PlanAndRun)->ArgNames({"seqlen", "threads"})->ArgsProduct({{1, 8, 64}, {1, 2}});

// fa3_plan_run of a plan made before: what a prepared call costs.
void PreparedRun(benchmark::State& state) {
  const int64_t seqlen = state.range(0);
  const Forward problem(FA3_F32, seqlen, seqlen, 1, 1, 64);
  const Context context = open_context(state, static_cast<int>(state.range(1)));
  const Plan plan = make_plan(state, context, problem);
  std::vector<std::byte> workspace(fa3_plan_workspace_bytes(plan.get()));
  for (auto _ : state) {
    if (!plan || !ok(state, fa3_plan_run(plan.get(), &problem.args(), workspace.data(),
                                         workspace.size(), nullptr))) {
      break;
    }
  }
}
BENCHMARK(PreparedRun)->ArgNames({"seqlen", "threads"})->ArgsProduct({{1, 8, 64}, {1, 2}});

// fa3_plan_forward alone.
void PlanOnly(benchmark::State& state) {
  const Forward problem(FA3_F32, 64, 64, 1, 1, 64);
  const Context context = open_context(state, 1);
  for (auto _ : state) {
    const Plan plan = make_plan(state, context, problem);
    if (!plan) break;
    benchmark::DoNotOptimize(plan.get());
  }
}
BENCHMARK(PlanOnly);

// ---- Decoding: one query, bytes_per_second = bytes of K and V read

void Decode(benchmark::State& state, fa3_dtype dtype, int64_t heads_q) {
  constexpr int64_t kHeadsKv = 8, kHeadDim = 128;
  const Forward problem(dtype, 1, state.range(0), heads_q, kHeadsKv, kHeadDim);
  const Context context = open_context(state, static_cast<int>(state.range(1)));
  for (auto _ : state) {
    if (!context || !ok(state, fa3_forward(context.get(), &problem.args(), nullptr))) break;
  }
  state.SetBytesProcessed(state.iterations() * problem.kv_bytes());
}
// 8 KV heads, head dim 128. At 65536 keys K and V are 512 MiB in f32: outside every cache.
void decode_sizes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"seqlen_kv", "threads"})->ArgsProduct({{4096, 65536}, {1, 2}})->UseRealTime();
}
BENCHMARK_CAPTURE(Decode, f32, FA3_F32, 8)->Apply(decode_sizes);
BENCHMARK_CAPTURE(Decode, bf16, FA3_BF16, 8)->Apply(decode_sizes);
BENCHMARK_CAPTURE(Decode, bf16_gqa4, FA3_BF16, 32)->Apply(decode_sizes);

// To compare Decode with: memcpy of as many bytes, on one thread. It reads and writes each
// byte; counted once.
void Memcpy(benchmark::State& state) {
  std::vector<std::byte> from(static_cast<size_t>(state.range(0))), to(from.size());
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Memcpy)->ArgName("bytes")->Arg(32 << 20)->Arg(256 << 20)->Arg(512 << 20)->UseRealTime();

// ---- Workspace: 4 heads, 512 × 512, head dim 64, causal, f32

void Workspace(benchmark::State& state, bool kept) {
  const Forward problem(FA3_F32, 512, 512, 4, 4, 64);
  const Context context = open_context(state, 2);
  const Plan plan = make_plan(state, context, problem);
  const size_t size = fa3_plan_workspace_bytes(plan.get());
  std::unique_ptr<std::byte[]> workspace(new std::byte[size]);
  for (auto _ : state) {
    if (!kept)
      workspace.reset(new std::byte[size]);  // not initialised: the run touches its pages first
    if (!plan ||
        !ok(state, fa3_plan_run(plan.get(), &problem.args(), workspace.get(), size, nullptr))) {
      break;
    }
  }
  state.counters["workspace_bytes"] = static_cast<double>(size);
}
BENCHMARK_CAPTURE(Workspace, kept, true)->UseRealTime();
BENCHMARK_CAPTURE(Workspace, fresh, false)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
