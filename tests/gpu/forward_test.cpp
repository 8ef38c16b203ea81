// SPDX-License-Identifier: BSD-3-Clause
// forward_test.cpp — the forward and the backward on a Hopper GPU through the C interface: right
// results, the same bits again, in a graph and on two streams (a backward: deterministic), and
// nothing written outside of the outputs whatever cu_seqlens and seqused hold. Small shapes, so
// that it runs under compute-sanitizer as well.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/check.h"
#include "tools/verify/device_call.h"

namespace fa3::gpu {
namespace {

constexpr int kRepeats = 10;

void ok(fa3_status status) {
  if (status != FA3_OK) throw std::runtime_error(fa3_last_error());
}

verify::Config config(int64_t head_dim, fa3_mask mask) {
  verify::Config c;
  c.dtype = FA3_BF16;
  c.batch = 2;
  c.heads_q = 4;
  c.heads_kv = 2;
  c.seqlen_q = 301;
  c.seqlen_kv = 423;
  c.head_dim_qk = c.head_dim_v = head_dim;
  c.mask = mask;
  c.alignment = 16;
  return c;
}

verify::Config varlen(int64_t head_dim, fa3_mask mask) {
  verify::Config c = config(head_dim, mask);
  c.varlen_q = {100, 0, 257, 31};
  c.varlen_kv = {90, 50, 300, 0};
  c.spare_q = 140;
  c.spare_kv = 77;
  c.seqused_q = {50, 0, 200, 31};
  c.seqused_kv = {80, 1, 255, 0};
  return c;
}

std::string text_of(const verify::Config& c) { return verify::replay_command(c, "cuda"); }

std::vector<verify::Config> configs() {
  std::vector<verify::Config> all;
  for (const int64_t d : {64, 128, 256}) {
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
      all.push_back(config(d, mask));
      all.push_back(varlen(d, mask));
    }
  }
  return all;
}

// 8 bits, with each kind of scales.
std::vector<verify::Config> eight_bit_configs() {
  using verify::parse_scales;
  std::vector<verify::Config> all;
  for (const int32_t dtype : {FA3_F8_E4M3, FA3_I8}) {
    for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
      for (verify::Config c : {config(128, mask), varlen(128, mask)}) {
        c.dtype = dtype;
        all.push_back(c);  // of heads
        c.q_scale = *parse_scales("group");
        c.k_scale = c.v_scale = *parse_scales("tensor");
        all.push_back(c);
        c.q_scale = *parse_scales("1");
        c.k_scale = *parse_scales("64");
        c.v_scale = *parse_scales("head");
        c.k_offset = c.v_offset = true;
        all.push_back(c);
        if (dtype != FA3_I8) continue;
        c.v_dtype = FA3_BF16;
        c.v_scale = {};
        c.v_offset = false;
        all.push_back(c);
      }
    }
  }
  return all;
}

void arguments(const verify::Config& c, const verify::Tensors& t, fa3_forward_args* args) {
  *args = verify::forward_args(c, t);
}
// With o and lse of the CPU.
void arguments(verify::Config c, const verify::Tensors& t, fa3_backward_args* args) {
  static const std::shared_ptr<fa3_context> cpu = [] {
    fa3_context_options options = {};
    options.struct_size = sizeof options;
    fa3_context* context = nullptr;
    ok(fa3_context_create(&options, &context));
    return std::shared_ptr<fa3_context>(context, fa3_context_destroy);
  }();
  const fa3_forward_args forward = verify::forward_args(c, t);
  ok(fa3_forward(cpu.get(), &forward, nullptr));
  c.deterministic = true;
  *args = verify::backward_args(c, t);
}
fa3_status make_plan(fa3_context* context, const fa3_forward_args& args, fa3_plan** plan) {
  return fa3_plan_forward(context, &args, plan);
}
fa3_status make_plan(fa3_context* context, const fa3_backward_args& args, fa3_plan** plan) {
  return fa3_plan_backward(context, &args, plan);
}
std::vector<fa3_tensor> outputs_of(const fa3_forward_args& args) { return {args.o, args.lse}; }
std::vector<fa3_tensor> outputs_of(const fa3_backward_args& args) {
  return {args.dq, args.dk, args.dv};
}

// Tensors of a problem, on the host and on the GPU, where a plan runs on the stream of a Gpu. Args:
// fa3_forward_args or fa3_backward_args.
template <class Args>
class Call {
 public:
  Call(fa3_context* context, const verify::Config& c)
      : tensors_(verify::make_tensors(config_of(c))),
        host_(host_of(c, tensors_)),
        device_(gpu_, host_) {
    fa3_plan* plan = nullptr;
    ok(make_plan(context, host_, &plan));
    plan_.reset(plan, fa3_plan_destroy);
    workspace_bytes_ = fa3_plan_workspace_bytes(plan);
    workspace_ = gpu_.allocate(workspace_bytes_);
  }
  ~Call() { gpu_.release(workspace_); }

  void poison() {
    for (const fa3_tensor& t : outputs_of(host_)) verify::fill(t, std::nan(""));
    device_.send_outputs();
  }
  void submit() {
    ok(fa3_plan_run(plan_.get(), &device_.args(), workspace_, workspace_bytes_, gpu_.stream()));
  }
  // Bits of the outputs, once the work on the stream is done.
  std::vector<std::byte> outputs() {
    gpu_.synchronize();
    device_.fetch_outputs();
    std::vector<std::byte> bits;
    for (const fa3_tensor& t : outputs_of(host_)) {
      const int64_t bytes = t.shape[t.rank - 1] * verify::element_bytes(t.dtype);
      verify::for_each_row(t, [&](const verify::Index&, const void* row) {
        const auto* const begin = static_cast<const std::byte*>(row);
        bits.insert(bits.end(), begin, begin + bytes);
      });
    }
    return bits;
  }
  std::vector<std::byte> run() {
    poison();
    submit();
    return outputs();
  }
  std::string damage() const { return device_.damage(); }
  verify::Gpu& gpu() { return gpu_; }
  const Args& host() const { return host_; }

  // Writes lengths or cuts on the host and the GPU.
  void set(fa3_tensor Args::*which, const std::vector<int>& values) {
    const fa3_tensor& t = device_.args().*which;
    gpu_.upload(t.data, values.data(), values.size() * sizeof(int));
    std::copy(values.begin(), values.end(), static_cast<int*>((host_.*which).data));
  }

 private:
  static verify::Config config_of(verify::Config c) {
    c.backward = std::is_same_v<Args, fa3_backward_args>;
    return c;
  }
  static Args host_of(const verify::Config& c, const verify::Tensors& t) {
    Args args;
    arguments(c, t, &args);
    return args;
  }

  verify::Gpu gpu_{0};
  verify::Tensors tensors_;
  Args host_;
  verify::DeviceCall<Args> device_;
  std::shared_ptr<fa3_plan> plan_;
  size_t workspace_bytes_ = 0;
  void* workspace_ = nullptr;
};

class GpuForward : public ::testing::Test {
 protected:
  void SetUp() override {
    fa3_context_options options = {};
    options.struct_size = sizeof options;
    options.device_type = FA3_DEVICE_CUDA;
    fa3_context* context = nullptr;
    if (fa3_context_create(&options, &context) != FA3_OK) GTEST_SKIP() << fa3_last_error();
    context_.reset(context, fa3_context_destroy);
  }
  fa3_context* context() const { return context_.get(); }

 private:
  std::shared_ptr<fa3_context> context_;
};

TEST_F(GpuForward, Results_AreRight) {
  for (const verify::Config& c : configs()) {
    const verify::Report report = verify::check(c, context());
    EXPECT_TRUE(report.ok) << report.text;
  }
}

TEST_F(GpuForward, BackwardResults_AreRight) {
  for (verify::Config c : configs()) {
    c.backward = true;
    for (const bool deterministic : {false, true}) {
      c.deterministic = deterministic;
      const verify::Report report = verify::check(c, context());
      EXPECT_TRUE(report.ok) << report.text;
    }
  }
}

TEST_F(GpuForward, EightBitResults_AreRight) {
  bool offered = false;
  for (const verify::Config& c : eight_bit_configs()) {
    const verify::Report report = verify::check(c, context());
    if (report.status == FA3_UNSUPPORTED) continue;  // by the kernels of this release
    offered = true;
    EXPECT_TRUE(report.ok) << report.text;
  }
  if (!offered) GTEST_SKIP() << fa3_last_error();
}

// Varlen queries have rows, and cu_seqlens = {0} says that none belongs to a sequence.
TEST_F(GpuForward, ResultsOfNoSequences_AreEmptyRows) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
    verify::Config c = config(128, mask);
    c.varlen_q = {150};
    c.varlen_kv = {90};
    const verify::Tensors t = verify::make_tensors(c);
    fa3_forward_args host = verify::forward_args(c, t);
    host.cu_seqlens_q.shape[0] = host.cu_seqlens_kv.shape[0] = 1;
    verify::Gpu gpu(0);
    verify::DeviceForward device(gpu, host);
    ok(fa3_forward(context(), &device.args(), gpu.stream()));
    gpu.synchronize();
    device.fetch_outputs();
    for (int64_t row = 0; row < 150; ++row) {
      for (int64_t head = 0; head < c.heads_q; ++head) {
        ASSERT_EQ(verify::get(host.lse, {head, row}), -INFINITY) << row << ", " << head;
        for (int64_t i = 0; i < c.head_dim_v; ++i)
          ASSERT_EQ(verify::get(host.o, {row, head, i}), 0) << row << ", " << head << ", " << i;
      }
    }
  }
}

template <class Args>
void expect_same_bits_again(fa3_context* context, const verify::Config& c) {
  Call<Args> call(context, c);
  const std::vector<std::byte> first = call.run();
  for (int i = 0; i < kRepeats; ++i) ASSERT_EQ(call.run(), first) << text_of(c);
  EXPECT_EQ(call.damage(), "") << text_of(c);
}

TEST_F(GpuForward, SameBits_Again) {
  for (const verify::Config& c : configs()) {
    expect_same_bits_again<fa3_forward_args>(context(), c);
    expect_same_bits_again<fa3_backward_args>(context(), c);
  }
}

// ---- Graphs ----

template <class... Args>
void driver(const char* name, Args... args) {
  const int result = reinterpret_cast<int (*)(Args...)>(verify::Gpu::function(name))(args...);
  if (result != 0) throw std::runtime_error(std::string(name) + ": " + std::to_string(result));
}

template <class Args>
void expect_same_bits_in_a_graph(fa3_context* context, const verify::Config& c) {
  constexpr int kThreadLocal = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
  Call<Args> call(context, c);
  verify::Gpu& gpu = call.gpu();
  const std::vector<std::byte> first = call.run();
  void *graph = nullptr, *executable = nullptr;
  gpu.within([&] {
    driver("cuStreamBeginCapture_v2", gpu.stream(), kThreadLocal);
    call.submit();
    driver("cuStreamEndCapture", gpu.stream(), &graph);
    driver("cuGraphInstantiateWithFlags", &executable, graph, 0ull);
  });
  for (int i = 0; i < kRepeats; ++i) {
    call.poison();
    gpu.within([&] { driver("cuGraphLaunch", executable, gpu.stream()); });
    ASSERT_EQ(call.outputs(), first) << text_of(c);
  }
  gpu.within([&] {
    driver("cuGraphExecDestroy", executable);
    driver("cuGraphDestroy", graph);
  });
}

TEST_F(GpuForward, SameBits_InAGraph) {
  for (const verify::Config& c : configs()) {
    expect_same_bits_in_a_graph<fa3_forward_args>(context(), c);
    expect_same_bits_in_a_graph<fa3_backward_args>(context(), c);
  }
}

template <class Args>
void expect_same_bits_on_two_streams(fa3_context* context, const verify::Config& c) {
  Call<Args> one(context, c), two(context, c);
  const std::vector<std::byte> first = one.run();
  for (int i = 0; i < kRepeats; ++i) {
    one.poison();
    two.poison();
    one.submit();
    two.submit();
    ASSERT_EQ(one.outputs(), first) << text_of(c);
    ASSERT_EQ(two.outputs(), first) << text_of(c);
  }
}

TEST_F(GpuForward, SameBits_OnTwoStreams) {
  for (const verify::Config& c : configs()) {
    expect_same_bits_on_two_streams<fa3_forward_args>(context(), c);
    expect_same_bits_on_two_streams<fa3_backward_args>(context(), c);
  }
}

// ---- Values that are wrong ----

// What cu_seqlens of four sequences may hold when it is wrong; `total`: rows of the tensor.
std::vector<std::vector<int>> lying_cuts(int total) {
  return {
      {-5, 10, 20, 30, 40},                           // before the tensor
      {INT_MIN, INT_MIN, 0, 0, total},                // far before it
      {0, 300, 100, 50, 10},                          // decreasing
      {0, total, 0, total, 0},                        // up and down
      {0, total + 1, total + 100, total, total},      // beyond it
      {INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX},  // far beyond it
      {0, INT_MAX, 0, INT_MIN, INT_MAX},              // differences that overflow
      {total - 1, total + 50, INT_MAX, -1, INT_MAX},
      {0, total, total, total, total},  // one sequence longer than max_seqlen
  };
}

std::vector<std::vector<int>> lying_lengths(int total) {
  return {{-1, -1, -1, -1},
          {INT_MIN, 0, INT_MIN, 0},
          {INT_MAX, INT_MAX, INT_MAX, INT_MAX},
          {total, total + 1, -total, INT_MAX}};
}

// Which values are wrong, for messages.
std::string text_of(const char* name, const std::vector<int>& values) {
  std::string text = name;
  for (const int value : values) text += " " + std::to_string(value);
  return text;
}

template <class Args>
void expect_lying_lengths_harmless(fa3_context* context, const verify::Config& c) {
  struct Lie {
    const char* name;
    fa3_tensor Args::*field;
    std::vector<std::vector<int>> values;
    std::vector<int> truth;
  };
  Call<Args> call(context, c);
  const std::vector<std::byte> first = call.run();
  const int rows_q = static_cast<int>(call.host().q.shape[0]);
  const int rows_kv = static_cast<int>(call.host().k.shape[0]);
  const Lie lies[] = {
      {"cu_seqlens_q", &Args::cu_seqlens_q, lying_cuts(rows_q), {0, 100, 100, 357, 388}},
      {"cu_seqlens_kv", &Args::cu_seqlens_kv, lying_cuts(rows_kv), {0, 90, 140, 440, 440}},
      {"seqused_q", &Args::seqused_q, lying_lengths(rows_q), {50, 0, 200, 31}},
      {"seqused_kv", &Args::seqused_kv, lying_lengths(rows_kv), {80, 1, 255, 0}},
  };
  for (const Lie& lie : lies) {
    for (const std::vector<int>& values : lie.values) {
      const std::string what = text_of(lie.name, values) + ": " + text_of(c);
      call.set(lie.field, values);
      ASSERT_NO_THROW(call.run()) << what;  // a fault of the GPU comes back here
      EXPECT_EQ(call.damage(), "") << what;
    }
    call.set(lie.field, lie.truth);
  }
  EXPECT_EQ(call.run(), first) << "once the values are right again: " << text_of(c);
}

TEST_F(GpuForward, LyingLengths_TouchNothingElse) {
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL}) {
    for (const int64_t d : {64, 128, 256}) {
      expect_lying_lengths_harmless<fa3_forward_args>(context(), varlen(d, mask));
      expect_lying_lengths_harmless<fa3_backward_args>(context(), varlen(d, mask));
    }
  }
}

}  // namespace
}  // namespace fa3::gpu
