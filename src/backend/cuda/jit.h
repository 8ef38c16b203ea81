// SPDX-License-Identifier: BSD-3-Clause
// jit.h — a program's cubin from the nearest source that has it: memory, disk cache, kernel bundle,
// compiler.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "backend/cuda/cache.h"
#include "backend/cuda/known_nvrtc.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/pack.h"
#include "core/log.h"
#include "core/once.h"
#include "core/status.h"

namespace fa3::cuda {

enum class KernelSource { kMemory, kDisk, kPack, kCompiled };
const char* source_name(KernelSource source);  // "memory", "disk", "pack", "compiled"

struct Kernel {
  std::shared_ptr<const Cubin> cubin;
  KernelSource source = KernelSource::kMemory;
};

// Kernels that this process has found or is about to, by key.
class KernelMemory {
 public:
  // The kernel of that key; the first thread to ask calls make(), others that ask meanwhile wait
  // for it. A failure goes to all that wait, and is forgotten.
  Result<Kernel> get(const Key& key, const std::function<Result<Kernel>()>& make);

  // A process that is forked meanwhile makes what threads of its parent were making.
  static KernelMemory& of_process();

 private:
  void forget_unfinished();  // mutex_ is held

  std::mutex mutex_;
  std::map<Key, std::shared_future<Result<Kernel>>> kernels_;
};

struct JitOptions {
  std::string cache_dir;      // absolute; "" = none
  std::string kernel_pack;    // path; "" = none
  std::string nvrtc;          // path; "" = search
  bool bundled_only = false;  // neither compile nor use the cache
  int driver_version = 0;     // that must load the cubins; 0 = none yet
  // How long to wait for another process that compiles the kernel: that takes seconds, on a busy
  // machine too.
  std::chrono::milliseconds patience{60'000};
  Logger logger;
};

// Safe to use from many threads at once. Opens what it needs when it is first needed.
class Jit {
 public:
  // Compiles the embedded device code.
  explicit Jit(JitOptions options)
      : Jit(std::move(options), device_headers().headers, device_headers().hash) {}
  // Compiles other code; `headers_hash` tells these headers from any others.
  Jit(JitOptions options, std::span<const DeviceHeader> headers, std::string headers_hash,
      KernelMemory& memory = KernelMemory::of_process());

  // JIT_FAILED with the compiler's log, or the reason why nothing compiles here.
  Result<Kernel> get(const Program& program);

  // By the compiler here: from the disk cache, else compiled. For bundles, which name one compiler.
  Result<Kernel> get_compiled(const Program& program);

  bool bundled_only() const { return options_.bundled_only; }

  // What there is, or why not.
  const Result<Nvrtc>& nvrtc();
  const Result<DiskCache>& disk();
  const Result<Pack>& pack();

  // Empties the disk cache; does not make its folder to do so.
  Status clear();

  // Names the program's cubin by that NVRTC: SHA-256 of its headers, program, options
  // (target included) and version.
  Key key(const Program& program, int nvrtc_version) const;

 private:
  NvrtcSearch search() const;
  const Result<int>& version();
  void warn_of_places();
  Result<Kernel> find(const Program& program);
  std::optional<Cubin> from_disk(const Program& program, const Result<int>& nvrtc_version);
  std::optional<Cubin> from_pack(const Program& program);
  Status check_header(const Program& program) const;
  Result<Kernel> compile_once(const Program& program);
  Result<Kernel> compile(const Program& program);

  JitOptions options_;
  std::span<const DeviceHeader> headers_;
  std::string headers_hash_;
  KernelMemory& memory_;
  Once<Nvrtc> nvrtc_;
  Once<int> version_;
  Once<DiskCache> disk_;
  Once<Pack> pack_;
  std::atomic<bool> warned_{false};
};

// A context's Jit, made by the first call that needs it: few contexts do. Its kernels suit the
// machine's driver, if there is one.
class LazyJit {
 public:
  explicit LazyJit(JitOptions options) : options_(std::move(options)) {}
  Jit& get();

 private:
  JitOptions options_;
  Once<std::unique_ptr<Jit>> jit_;
};

}  // namespace fa3::cuda
