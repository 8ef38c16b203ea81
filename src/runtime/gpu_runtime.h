// SPDX-License-Identifier: BSD-3-Clause
// gpu_runtime.h — what runs kernels: memory, tensor maps, launches. Implemented for a GPU
// (backend/cuda/runtime.h) and for the simulator (backend/sim/runtime.h), so that launchers and
// conformance programs are written once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/status.h"
#include "device/tensor_map.h"
#include "runtime/program.h"

namespace fa3 {

// Where work is queued: on the runtime's own stream, or on one of the caller's (a CUstream; null is
// the legacy default stream). The simulator has none and runs work at once.
struct StreamRef {
  static StreamRef of(void* stream) { return {false, stream}; }

  bool own = true;
  void* stream = nullptr;
};

class GpuRuntime {
 public:
  virtual ~GpuRuntime() = default;

  virtual std::string name() const = 0;

  // Memory of the device; allocations are named for reports. Throws Error(OUT_OF_MEMORY).
  virtual void* allocate(size_t bytes, const char* name) = 0;
  virtual void release(void* pointer) = 0;
  // Ordered on the runtime's stream; both return when the copy is done.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;

  // INVALID_ARGUMENT with every field of the spec when it breaks a rule of TMA.
  virtual Result<TensorMap> encode(const TensorMapSpec& spec) = 0;

  // Compiles or finds the program, so that a later launch on that stream does neither.
  virtual Status prepare(const Program& program, StreamRef on) = 0;
  Status prepare(const Program& program) { return prepare(program, {}); }
  // Sets bytes to 0, in the order of the stream.
  virtual Status zero(void* to, size_t bytes, StreamRef on) = 0;
  // The same with words of 4 bytes that lie so many bytes apart.
  virtual Status fill(void* to, uint32_t word, size_t count, size_t apart, StreamRef on) = 0;
  // Starts the program with one argument struct; the simulator returns when it has run.
  // INVALID_ARGUMENT names the field, its value and the limit. A violation found by the simulator
  // comes back as FA3_INTERNAL with the report as message.
  virtual Status launch(const Program& program, const LaunchShape& shape, const void* args,
                        size_t args_bytes, StreamRef on) = 0;
  Status launch(const Program& program, const LaunchShape& shape, const void* args,
                size_t args_bytes) {
    return launch(program, shape, args, args_bytes, {});
  }
  virtual Status synchronize() = 0;
};

}  // namespace fa3
