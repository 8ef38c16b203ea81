// SPDX-License-Identifier: BSD-3-Clause
// device.h — what a context computes on: the part of DeviceInfo that plans depend on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/status.h"
#include "fa3/fa3.h"

namespace fa3 {

// Instruction sets that the cpu backend has kernels for, narrowest first.
enum class Isa { kScalar, kSse4, kAvx2, kAvx3, kAvx3Bf16, kNeon };

const char* isa_name(Isa isa);  // "scalar", "sse4", "avx2", "avx3", "avx3_bf16", "neon"
const char* backend_name(fa3_backend backend);  // "auto", "cpu", "reference", "cuda", "sim"

struct Tuning;  // core/tuning.h

struct DeviceInfo {
  fa3_device_type type = FA3_DEVICE_CPU;
  int id = 0;
  fa3_backend backend = FA3_BACKEND_CPU;  // what AUTO resolved to
  bool backend_chosen = false;  // the context's options name the backend: it is not AUTO's choice
  int threads = 1;              // most threads a run uses
  Isa isa = Isa::kScalar;
  int lanes = 1;            // backend cpu: floats per vector of that set's kernels
  int sm = 0;               // of a GPU, or of the simulated one: 10 · compute capability, e.g. 90
  int multiprocessors = 0;  // likewise
  int64_t l1_bytes = 0;     // 0 = unknown
  int64_t l2_bytes = 0;     // of a GPU: in all
  int64_t memory_bytes = 0;
  std::string name;
  std::shared_ptr<const Tuning> tuning;  // of the user, by FA3_TUNING; null = none
};

// The processor's name, caches and memory. threads = cores allowed to the process. Sets neither
// backend nor isa.
DeviceInfo host_device();

inline constexpr int kMaxThreads = 1024;  // most threads that a context takes

}  // namespace fa3
