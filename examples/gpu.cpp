// SPDX-License-Identifier: BSD-3-Clause
// gpu.cpp — attention on a Hopper GPU from C++17: memory of the GPU, a stream, one plan, many runs,
// and a graph that is captured once and replayed on new inputs.
//
// Build, once fa3 is installed:  c++ -std=c++17 gpu.cpp $(pkg-config --cflags --libs fa3) -ldl
// or with CMake:                 CMakeLists.txt beside this file
// Exit status: 0 the results are right, 1 they are not or a call failed, 4 no Hopper GPU is here.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fa3/fa3.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_driver.h"

namespace {

constexpr int kWrong = 1, kNoGpu = 4;  // exit status
constexpr int kDevice = 0;             // the first GPU

// Two sentences of 300 tokens; 8 heads ask, 2 heads answer: each KV head serves 4 query heads.
constexpr int64_t kBatch = 2, kTokens = 300, kHeadsQ = 8, kHeadsKv = 2, kHeadDim = 128;

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "unknown error";
  cuGetErrorName(result, &name);
  throw std::runtime_error(std::string(what) + ": " + name);
}

// ---- The GPU: its primary context and a stream --------------------------------------------------

class Gpu {
 public:
  Gpu() {
    CUcontext context = nullptr;
    check(cuDevicePrimaryCtxRetain(&context, kDevice), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  ~Gpu() {
    cuStreamDestroy(stream_);
    cuDevicePrimaryCtxRelease(kDevice);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  CUstream stream() const { return stream_; }
  void wait() const { check(cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

 private:
  CUstream stream_ = nullptr;
};

// Memory of the GPU. What cuMemAlloc and cudaMalloc give is aligned as fa3 needs it.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    if (bytes > 0) check(cuMemAlloc(&address_, bytes), "cuMemAlloc");
  }
  ~Memory() {
    if (address_ != 0) cuMemFree(address_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return reinterpret_cast<void*>(address_); }
  std::size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  std::size_t bytes_;
};

// ---- BF16 on the host ---------------------------------------------------------------------------

using Bf16 = std::uint16_t;  // the upper half of a float

float to_float(Bf16 value) {
  const std::uint32_t bits = std::uint32_t{value} << 16;
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Numbers in [-1, 1) from a small generator, so that every run is the same.
std::vector<Bf16> random_numbers(int64_t heads, std::uint32_t seed) {
  std::vector<Bf16> numbers(static_cast<std::size_t>(kBatch * kTokens * heads * kHeadDim));
  for (Bf16& number : numbers) {
    seed = seed * 1664525u + 1013904223u;
    const float value = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    number = static_cast<Bf16>(bits >> 16);
  }
  return numbers;
}

// ---- A tensor on both sides ---------------------------------------------------------------------

struct Tensor {
  int64_t heads;
  std::vector<Bf16> host;
  Memory memory;

  Tensor(int64_t count, std::uint32_t seed)
      : heads(count), host(random_numbers(count, seed)), memory(2 * host.size()) {}

  // What fa3 is given: an address in the GPU's memory, a type, a shape; dense, as no strides are.
  fa3_tensor view() const {
    return fa3::tensor(memory.data(), FA3_BF16, {kBatch, kTokens, heads, kHeadDim});
  }
  void upload(CUstream stream) const {
    const auto to = reinterpret_cast<CUdeviceptr>(memory.data());
    check(cuMemcpyHtoDAsync(to, host.data(), memory.bytes(), stream), "cuMemcpyHtoDAsync");
  }
  void download(CUstream stream) {
    const auto from = reinterpret_cast<CUdeviceptr>(memory.data());
    check(cuMemcpyDtoHAsync(host.data(), from, memory.bytes(), stream), "cuMemcpyDtoHAsync");
  }
  const Bf16* row(int64_t batch, int64_t token, int64_t head) const {
    return host.data() + ((batch * kTokens + token) * heads + head) * kHeadDim;
  }
};

struct Attention {
  Tensor q{kHeadsQ, 1}, k{kHeadsKv, 2}, v{kHeadsKv, 3}, o{kHeadsQ, 4};

  fa3_forward_args args() const {
    fa3_forward_args args = fa3::forward_args();
    args.q = q.view();
    args.k = k.view();
    args.v = v.view();
    args.o = o.view();
    args.mask = FA3_MASK_CAUSAL;
    return args;
  }
};

// The error of a row of O, relative to its size, against the definition in double: scores, softmax,
// weighted sum of the values. NaN anywhere makes it NaN.
double error_of_row(const Attention& x, int64_t batch, int64_t token, int64_t head) {
  const int64_t head_kv = head / (kHeadsQ / kHeadsKv);
  const Bf16* const query = x.q.row(batch, token, head);
  std::vector<double> want(kHeadDim);
  double sum = 0;
  for (int64_t j = 0; j <= token; ++j) {  // causal: a token sees itself and those before it
    const Bf16 *const key = x.k.row(batch, j, head_kv), *const value = x.v.row(batch, j, head_kv);
    double score = 0;
    for (int64_t c = 0; c < kHeadDim; ++c) score += double{to_float(query[c])} * to_float(key[c]);
    const double weight = std::exp(score / std::sqrt(double{kHeadDim}));
    sum += weight;
    for (int64_t c = 0; c < kHeadDim; ++c) want[c] += weight * to_float(value[c]);
  }
  double error = 0, size = 0;
  for (int64_t c = 0; c < kHeadDim; ++c) {
    const double difference = want[c] / sum - to_float(x.o.row(batch, token, head)[c]);
    error += difference * difference;
    size += want[c] / sum * want[c] / sum;
  }
  return std::sqrt(error / size);
}

bool is_right(const Attention& x, const char* what) {
  constexpr double kBound = 1e-2;  // BF16 carries 8 bits
  bool right = true;
  double largest = 0;
  for (const int64_t token : {int64_t{0}, int64_t{1}, int64_t{128}, kTokens - 1}) {
    const double error = error_of_row(x, kBatch - 1, token, kHeadsQ - 1);
    right = right && error <= kBound;
    largest = std::fmax(largest, error);
  }
  std::printf("%-28s error %.1e of the size of a row: %s\n", what, largest,
              right ? "right" : "WRONG");
  return right;
}

// ---- Plan once, run, capture, replay ------------------------------------------------------------

int run(const fa3::Context& context) {
  const Gpu gpu;
  Attention x;
  for (const Tensor* input : {&x.q, &x.k, &x.v}) input->upload(gpu.stream());

  // The plan finds or compiles the kernel, so that no run does. It serves any number of runs of the
  // same shapes, at other addresses too; each run that is in flight needs a workspace of its own.
  const fa3_forward_args args = x.args();
  const fa3::Plan plan = context.plan(args);
  const Memory workspace(plan.workspace_bytes());

  // A run returns when the work is on the stream. It neither waits nor allocates.
  plan.run(args, workspace.data(), workspace.bytes(), gpu.stream());
  x.o.download(gpu.stream());
  gpu.wait();
  bool right = is_right(x, "a run on a stream:");

  // So it can be captured. The graph holds the addresses of this run: replay it after new inputs
  // have been copied there.
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  check(cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "cuStreamBeginCapture");
  plan.run(args, workspace.data(), workspace.bytes(), gpu.stream());
  check(cuStreamEndCapture(gpu.stream(), &graph), "cuStreamEndCapture");
  check(cuGraphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
  for (const std::uint32_t seed : {11, 12, 13}) {
    x.q.host = random_numbers(kHeadsQ, seed);
    x.q.upload(gpu.stream());
    check(cuGraphLaunch(executable, gpu.stream()), "cuGraphLaunch");
    x.o.download(gpu.stream());
    gpu.wait();
    right = is_right(x, "a graph, on new queries:") && right;
  }
  check(cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  check(cuGraphDestroy(graph), "cuGraphDestroy");
  return right ? 0 : kWrong;
}

struct NoGpu : std::runtime_error {
  using std::runtime_error::runtime_error;
};

fa3::Context open_context() {
  if (const char* const why = open_driver(); why != nullptr) throw NoGpu(why);
  int count = 0;
  if (cuInit(0) != CUDA_SUCCESS || cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0)
    throw NoGpu("the driver finds none");
  try {
    return fa3::Context(fa3::gpu_options(kDevice));
  } catch (const fa3::Error& error) {
    if (error.status() == FA3_UNSUPPORTED) throw NoGpu(error.what());  // another GPU, or driver
    throw;
  }
}

}  // namespace

int main() {
  try {
    const fa3::Context context = open_context();
    std::printf("fa3 %s on %s\n", fa3_version(), context.device_info().name);
    return run(context);
  } catch (const NoGpu& error) {
    std::fprintf(stderr, "gpu: no Hopper GPU to compute on: %s\n", error.what());
    return kNoGpu;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu: %s\n", error.what());
    return kWrong;
  }
}
