// SPDX-License-Identifier: BSD-3-Clause
// sim.cpp — speed of the simulator: a forward schedule of 384 threads, head_dim 128, tiles of 128 ×
// 128, 512 × 512, one head, all checks on. Prints one JSON line: milliseconds per seed and what a
// run does. `fa3_bench_sim [seeds] [workers]`.
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "device/selftest/attention.cuh"
#include "sim/device.h"
#include "sim/tensor_map.h"

namespace {

using namespace fa3;

constexpr int kRows = 512, kD = 128;

TensorMap map_of(void* base, u32 box_rows) {
  TensorMapSpec spec;
  spec.base = base;
  spec.rank = 2;
  spec.dim[0] = kD;
  spec.dim[1] = kRows;
  spec.stride_bytes[1] = kD * 2;
  spec.box[0] = 64;
  spec.box[1] = box_rows;
  spec.swizzle = Swizzle::k128;
  return sim::encode_tensor_map(spec).value();
}

}  // namespace

int main(int argc, char** argv) {
  const u64 seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 60;
  sim::Device device;
  device.options.workers = argc > 2 ? static_cast<u32>(std::atoi(argv[2])) : 1;
  alignas(128) static u16 q[kRows * kD], k[kRows * kD], v[kRows * kD], o[kRows * kD];
  static float lse[kRows];
  for (int i = 0; i < kRows * kD; i++)
    q[i] = k[i] = v[i] = static_cast<u16>(0x3C00 + i % 512 * 2 + (i % 3 == 0 ? 0x8000 : 0));
  device.memory.add("q", q, sizeof q, true);
  device.memory.add("k", k, sizeof k, true);
  device.memory.add("v", v, sizeof v, true);
  device.memory.add("o", o, sizeof o);
  device.memory.add("lse", lse, sizeof lse);
  AttentionArgs args{};
  args.q = map_of(q, 128);
  args.k = map_of(k, 128);
  args.v = map_of(v, 128);
  args.o = map_of(o, 64);
  args.lse = lse;
  args.tiles_kv = kRows / 128;
  args.scale_log2e = 0.1275f;
  const LaunchShape shape{{kRows / 128, 1, 1}, AttentionSizes::kThreads, sizeof(AttentionSmem)};
  const sim::Kernel kernel = [](const void* a) {
    attention(*static_cast<const AttentionArgs*>(a));
  };
  std::vector<double> times;
  sim::Stats stats;
  for (u64 seed = 0; seed < seeds; seed++) {
    device.options.seed = seed;
    const auto begin = std::chrono::steady_clock::now();
    stats = device.launch(kernel, shape, &args);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - begin;
    times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print(
      "{{\"benchmark\": \"sim.forward_512x512x128\", \"seeds\": {}, \"workers\": {}, "
      "\"ms_median\": {:.2f}, \"ms_p10\": {:.2f}, \"ms_p90\": {:.2f}, \"rss_mib\": {}, "
      "\"wgmmas\": {}, \"steps\": {}}}\n",
      seeds, device.options.workers, times[times.size() / 2], times[times.size() / 10],
      times[times.size() * 9 / 10], usage.ru_maxrss / 1024, stats.wgmmas, stats.steps);
}
