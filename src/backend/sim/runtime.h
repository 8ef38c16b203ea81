// SPDX-License-Identifier: BSD-3-Clause
// runtime.h — GpuRuntime of the simulator; its library, libfa3_sim.so, is opened on demand.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/gpu_runtime.h"

namespace fa3::sim {

struct SimApi;

// Opens libfa3_sim.so once per process: from this library's folder, ../lib, or the system's paths.
// UNSUPPORTED with the reason when there is none or it belongs to another version.
Result<const SimApi*> load_simulator();

class SimRuntime final : public GpuRuntime {
 public:
  struct Settings {
    u64 seed = 0;
    u32 workers = 0;  // OS threads for CTAs that do not interact; 0 = one per core
    u32 sms = 4;
    bool exact_sums = false;  // wgmma of 16-bit types bit for bit as a GPU, and slower
    // Event log of the latest launch, as JSON for Perfetto; launches then run by the clock of
    // sim/timing.h instead of the seed's schedule. "" = none.
    std::string trace_path;
  };

  static Result<std::unique_ptr<SimRuntime>> open(const Settings& settings);
  ~SimRuntime() override;
  SimRuntime(const SimRuntime&) = delete;
  SimRuntime& operator=(const SimRuntime&) = delete;

  std::string name() const override { return "simulator"; }
  void set_seed(u64 seed);

  void* allocate(size_t bytes, const char* name) override;
  void release(void* pointer) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  // Memory of the caller's that kernels may touch, or only read, until it is removed.
  void add(void* base, size_t bytes, const char* name, bool read_only = false);
  void remove(void* base);
  Result<TensorMap> encode(const TensorMapSpec& spec) override;
  // UNSUPPORTED when the program was not compiled into libfa3_sim.so.
  using GpuRuntime::prepare;
  Status prepare(const Program& program, StreamRef on) override;
  Status zero(void* to, size_t bytes, StreamRef on) override;
  Status fill(void* to, uint32_t word, size_t count, size_t apart, StreamRef on) override;
  using GpuRuntime::launch;
  Status launch(const Program& program, const LaunchShape& shape, const void* args,
                size_t args_bytes, StreamRef on) override;
  Status synchronize() override;

 private:
  SimRuntime(const SimApi& api, void* device) : api_(api), device_(device) {}

  const SimApi& api_;
  void* device_;
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<std::byte[]>> allocations_;  // by the address handed out
};

}  // namespace fa3::sim
