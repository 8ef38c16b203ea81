// SPDX-License-Identifier: BSD-3-Clause
// machine.h — a device as a kernel's launcher sees it: memory, tensor maps, programs. The GPU
// (backend/cuda) and the simulator (backend/sim) both are one, so launchers and conformance
// programs are written once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/status.h"
#include "device/tensor_map.h"

namespace fa3 {

namespace cuda {
struct HeaderSet;  // backend/cuda/device_headers.h
}

// A kernel: NVRTC compiles `#include "header"` and the name expression; the simulator looks the
// expression up among the programs that were compiled into it.
struct Program {
  std::string header;      // "device/kernels/fwd_sm90.cuh"
  std::string expression;  // "fa3::fwd_sm90<fa3::FwdConfig{…}>"
  // Another library's device code, which NVRTC sees beside this library's; null = none. Stays
  // where it is as long as the process runs.
  const cuda::HeaderSet* headers = nullptr;
};

struct LaunchShape {
  u32 grid[3] = {1, 1, 1};
  u32 threads = 0;     // per CTA, one-dimensional
  u32 smem_bytes = 0;  // dynamic shared memory per CTA
  u32 cluster = 1;     // CTAs along x per cluster
  bool pdl = false;    // may start before the grid ahead of it has ended (griddepcontrol)
  // CTAs of different clusters talk through global memory; the simulator asks to be told.
  bool interacting = false;
  // CTAs wait for each other: a GPU starts all at once (cooperative launch), and refuses a grid
  // that does not fit.
  bool waiting = false;
};

// Where work is queued: on the machine's own stream, or on one of the caller's (a CUstream; null is
// the legacy default stream). The simulator has none and runs work at once.
struct StreamRef {
  static StreamRef of(void* stream) { return {false, stream}; }

  bool own = true;
  void* stream = nullptr;
};

class Machine {
 public:
  virtual ~Machine() = default;

  virtual std::string name() const = 0;

  // Memory of the device; allocations are named for reports. Throws Error(OUT_OF_MEMORY).
  virtual void* allocate(size_t bytes, const char* name) = 0;
  virtual void release(void* pointer) = 0;
  // Ordered on the machine's stream; both return when the copy is done.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  virtual void download(void* to, const void* from, size_t bytes) = 0;

  // INVALID_ARGUMENT with every field of the spec when it breaks a rule of TMA.
  virtual Result<TensorMap> encode(const TensorMapSpec& spec) = 0;

  // Compiles or finds the program, so that a later launch on that stream does neither.
  virtual Status prepare(const Program& program, StreamRef on) = 0;
  Status prepare(const Program& program) { return prepare(program, {}); }
  // Sets bytes to 0, in the order of the stream.
  virtual Status zero(void* to, size_t bytes, StreamRef on) = 0;
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
