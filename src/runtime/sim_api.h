// SPDX-License-Identifier: BSD-3-Clause
// sim_api.h — what libfa3_sim.so offers to libfa3: plain functions, since neither links the other.
#pragma once

#include <cstddef>

#include "runtime/gpu_runtime.h"

namespace fa3::sim {

// What a simulated GPU is opened with; see sim/device.h.
struct SimSettings {
  u64 seed;
  u32 workers;  // 0 = one per core
  u32 sms;
  bool exact_sums;
  const char* trace_path;  // where to write each launch's event log, by the clock; null = nowhere
};

// Functions return null, or a message that is valid until the next call on the same thread.
struct SimApi {
  const char* version;  // of fa3; libfa3 takes a library of its own version only
  void* (*create)(const SimSettings* settings);
  void (*destroy)(void* device);
  void (*seed)(void* device, u64 seed);
  // read_only: kernels may not write it.
  const char* (*add)(void* device, void* base, size_t bytes, const char* name, bool read_only,
                     fa3_status* code);
  const char* (*remove)(void* device, void* base);
  void (*settle)(void* device);  // orders all grids so far before later ones
  const char* (*encode)(const TensorMapSpec* spec, TensorMap* map);
  const char* (*has_program)(const char* expression, bool* has, fa3_status* code);
  const char* (*program)(size_t i);  // name expressions without blanks; null beyond the last
  const char* (*launch)(void* device, const char* expression, const LaunchShape* shape,
                        const void* args, fa3_status* code);
};

extern "C" const SimApi* fa3_sim_api(void);

}  // namespace fa3::sim
