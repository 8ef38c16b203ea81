// SPDX-License-Identifier: BSD-3-Clause
// peak.cpp — fa3_peak: the arithmetic peak of this processor as one JSON object: f32 by fused
// multiply-add, bf16 by the dot-product instruction, in the widest vectors present. "Percent of
// peak" divides by it, so it is measured next to the kernel that it judges.
//
// Every loop keeps independent accumulators in registers and touches no memory. 16 of them cover
// latency × issue rate wherever this runs (FMA: 4 cycles × 2 a cycle). On Intel's Golden Cove
// family dpbf16 issues at a quarter of the FMA rate, which makes the bf16 peak *half* the f32 peak;
// on AMD Zen 4 and 5 it is twice the f32 peak. Both are facts about processors: the figure is what
// the instruction can do, not what its name promises.
#include <algorithm>
#include <barrier>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace {

#define FA3_EACH_OF_12(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define FA3_EACH_OF_16(X) FA3_EACH_OF_12(X) X(12) X(13) X(14) X(15)

// One way to multiply and add. A null loop = this processor has none.
struct Kernel {
  const char* name = "none";
  int64_t flops_per_step = 0;
  void (*loop)(int64_t steps) = nullptr;
};

#if defined(__x86_64__)

// acc = acc · 0.999 + 0.001 stays near 1: not subnormal, not infinite; those slow some cores down.
// The empty asm statements tell the compiler that the accumulators are used.
__attribute__((target("avx512f"))) void fma_avx512(int64_t steps) {
  const __m512 scale = _mm512_set1_ps(0.999f), addend = _mm512_set1_ps(0.001f);
#define FA3_START(i) __m512 acc##i = _mm512_set1_ps(1.0f + 0.01f * i);
#define FA3_STEP(i) acc##i = _mm512_fmadd_ps(acc##i, scale, addend);
#define FA3_USE(i) asm volatile("" ::"v"(acc##i));
  FA3_EACH_OF_16(FA3_START)
  for (; steps > 0; --steps) {
    FA3_EACH_OF_16(FA3_STEP)
  }
  FA3_EACH_OF_16(FA3_USE)
#undef FA3_START
#undef FA3_STEP
}

// acc += a·b over pairs of bf16; the sum grows until the addend no longer counts, and stays finite.
__attribute__((target("avx512f,avx512bf16"))) void dot_avx512_bf16(int64_t steps) {
  const __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
#define FA3_START(i) __m512 acc##i = _mm512_set1_ps(1.0f + 0.01f * i);
#define FA3_STEP(i) acc##i = _mm512_dpbf16_ps(acc##i, factor, factor);
  FA3_EACH_OF_16(FA3_START)
  for (; steps > 0; --steps) {
    FA3_EACH_OF_16(FA3_STEP)
  }
  FA3_EACH_OF_16(FA3_USE)
#undef FA3_START
#undef FA3_STEP
}

// 12 accumulators: 16 and the two operands do not fit into the 16 registers of AVX2.
__attribute__((target("avx2,fma"))) void fma_avx2(int64_t steps) {
  const __m256 scale = _mm256_set1_ps(0.999f), addend = _mm256_set1_ps(0.001f);
#define FA3_START(i) __m256 acc##i = _mm256_set1_ps(1.0f + 0.01f * i);
#define FA3_STEP(i) acc##i = _mm256_fmadd_ps(acc##i, scale, addend);
  FA3_EACH_OF_12(FA3_START)
  for (; steps > 0; --steps) {
    FA3_EACH_OF_12(FA3_STEP)
  }
  FA3_EACH_OF_12(FA3_USE)
#undef FA3_START
#undef FA3_STEP
#undef FA3_USE
}

Kernel f32_kernel() {
  if (__builtin_cpu_supports("avx512f")) return {"avx512 fma", 16 * 32, fma_avx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"avx2 fma", 12 * 16, fma_avx2};
  }
  return {};
}

Kernel bf16_kernel() {
  if (__builtin_cpu_supports("avx512bf16")) return {"avx512 dpbf16", 16 * 64, dot_avx512_bf16};
  return {};
}

#elif defined(__aarch64__)

void fma_neon(int64_t steps) {
  const float32x4_t scale = vdupq_n_f32(0.001f), factor = vdupq_n_f32(0.5f);
#define FA3_START(i) float32x4_t acc##i = vdupq_n_f32(1.0f + 0.01f * i);
#define FA3_STEP(i) acc##i = vfmaq_f32(acc##i, scale, factor);
#define FA3_USE(i) asm volatile("" ::"w"(acc##i));
  FA3_EACH_OF_16(FA3_START)
  for (; steps > 0; --steps) {
    FA3_EACH_OF_16(FA3_STEP)
  }
  FA3_EACH_OF_16(FA3_USE)
#undef FA3_START
#undef FA3_STEP
#undef FA3_USE
}

Kernel f32_kernel() { return {"neon fma", 16 * 8, fma_neon}; }
Kernel bf16_kernel() { return {}; }

#else
Kernel f32_kernel() { return {}; }
Kernel bf16_kernel() { return {}; }
#endif

double seconds_of(void (*loop)(int64_t), int64_t steps) {
  const auto begin = std::chrono::steady_clock::now();
  loop(steps);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// GFLOP/s over all threads, from rounds of 10 ms. The peak is their 90th percentile: a round may
// catch a burst of the clock that no real kernel can hold, or another program's work. The median
// tells how steady the machine was.
struct Rate {
  double peak = 0;
  double median = 0;
};

// All threads run the loop at the same time, round after round; a round counts their sum.
Rate measure(const Kernel& kernel, int threads, double seconds) {
  constexpr double kRoundSeconds = 0.01;
  int64_t steps = 1000;
  while (seconds_of(kernel.loop, steps) < kRoundSeconds / 2) steps *= 2;
  const auto rounds = std::max<int64_t>(5, static_cast<int64_t>(seconds / kRoundSeconds));

  std::vector<std::vector<double>> gflops(threads, std::vector<double>(rounds));
  std::barrier meet(threads);
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      for (double& rate : gflops[t]) {
        meet.arrive_and_wait();
        rate = 1e-9 * kernel.flops_per_step * steps / seconds_of(kernel.loop, steps);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();

  std::vector<double> total(rounds, 0.0);
  for (const auto& of_thread : gflops) {
    for (int64_t round = 0; round < rounds; ++round) total[round] += of_thread[round];
  }
  std::sort(total.begin(), total.end());
  return {total[(rounds - 1) * 9 / 10], total[rounds / 2]};
}

// Clock of one busy core in GHz, by a chain of multiplications; 0 where their latency is unknown.
double clock_ghz() {
#if defined(__x86_64__)
  constexpr int kLatency = 3;  // cycles of a 64-bit multiplication on every x86 core in use
  constexpr int64_t kSteps = 4'000'000;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double seconds = seconds_of(
        [](int64_t steps) {
          uint64_t chain = 3;
          for (; steps > 0; --steps) asm volatile("imul %0, %0" : "+r"(chain));
        },
        kSteps);
    best = std::max(best, 1e-9 * kLatency * kSteps / seconds);
  }
  return best;
#else
  return 0;
#endif
}

void print_kernel(const char* dtype, const Kernel& kernel, const std::vector<int>& thread_counts,
                  double seconds) {
  if (kernel.loop == nullptr) {
    std::printf(", \"%s\": null", dtype);
    return;
  }
  std::printf(", \"%s\": {\"instruction\": \"%s\", \"gflops\": {", dtype, kernel.name);
  const char* separator = "";
  for (const int threads : thread_counts) {
    const Rate rate = measure(kernel, threads, seconds);
    std::printf("%s\"%d\": {\"peak\": %.1f, \"median\": %.1f}", separator, threads, rate.peak,
                rate.median);
    separator = ", ";
  }
  std::printf("}}");
}

struct Options {
  std::vector<int> threads;
  double seconds = 0.5;
  bool f32 = true;
  bool bf16 = true;
};

constexpr const char* kUsage =
    "usage: fa3_peak [--threads N[,N…]] [--seconds S] [--dtype f32|bf16]\n"
    "Measures GFLOP/s of f32 FMA and bf16 dot products in the widest vectors of this processor.\n"
    "  --threads  thread counts to measure, each 1…1024 (default: 1 and all)\n"
    "  --seconds  time per measurement, 0.05…60 (default 0.5)\n"
    "  --dtype    only this one (default: both)\n";

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_threads(std::string_view text, std::vector<int>& threads) {
  while (true) {
    const size_t comma = text.find(',');
    int count = 0;
    if (!parse_number(text.substr(0, comma), count) || count < 1 || count > 1024) return false;
    threads.push_back(count);
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) return false;
    const std::string_view value = argv[i + 1];
    if (name == "--threads") {
      if (!parse_threads(value, options.threads)) return false;
    } else if (name == "--seconds") {
      if (!parse_number(value, options.seconds)) return false;
      if (!(options.seconds >= 0.05 && options.seconds <= 60)) return false;
    } else if (name == "--dtype" && (value == "f32" || value == "bf16")) {
      options.f32 = value == "f32";
      options.bf16 = value == "bf16";
    } else {
      return false;
    }
  }
  if (options.threads.empty()) {
    options.threads.push_back(1);
    const int all = static_cast<int>(std::thread::hardware_concurrency());
    if (all > 1) options.threads.push_back(all);
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  std::printf("{\"clock_ghz\": %.3f", clock_ghz());
  if (options.f32) print_kernel("f32", f32_kernel(), options.threads, options.seconds);
  if (options.bf16) print_kernel("bf16", bf16_kernel(), options.threads, options.seconds);
  std::printf("}\n");
  return 0;
}
