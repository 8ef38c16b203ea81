// SPDX-License-Identifier: BSD-3-Clause
// jit.cpp — the search for a kernel, from the cheapest source to the most expensive.
#include "backend/cuda/jit.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "backend/cuda/driver.h"

namespace fa3::cuda {
namespace {

Kernel kernel(Cubin cubin, KernelSource source) {
  return {std::make_shared<const Cubin>(std::move(cubin)), source};
}

}  // namespace

const char* source_name(KernelSource source) {
  switch (source) {
    case KernelSource::kMemory:
      return "memory";
    case KernelSource::kDisk:
      return "disk";
    case KernelSource::kPack:
      return "pack";
    case KernelSource::kCompiled:
      return "compiled";
  }
  return "unknown";
}

// Never destroyed: the process may fork until its end.
KernelMemory& KernelMemory::of_process() {
  static KernelMemory& memory = *new KernelMemory;
  static const int handlers =
      pthread_atfork([] { memory.mutex_.lock(); }, [] { memory.mutex_.unlock(); },
                     [] {
                       memory.forget_unfinished();
                       memory.mutex_.unlock();
                     });
  static_cast<void>(handlers);
  return memory;
}

void KernelMemory::forget_unfinished() {
  std::erase_if(kernels_, [](const auto& kernel) {
    return kernel.second.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
  });
}

Result<Kernel> KernelMemory::get(const Key& key, const std::function<Result<Kernel>()>& make) {
  std::promise<Result<Kernel>> promise;
  for (;;) {
    std::shared_future<Result<Kernel>> known;
    {
      const std::lock_guard lock(mutex_);
      const auto [place, is_new] = kernels_.try_emplace(key);
      if (is_new) place->second = promise.get_future().share();
      if (is_new) break;
      known = place->second;
    }
    // What another context failed to make, this one may be able to: it has a compiler, or a bundle.
    try {
      Result<Kernel> result = known.get();
      if (!result.ok()) continue;
      result.value().source = KernelSource::kMemory;
      return result;
    } catch (...) {
    }
  }
  const auto forget = [&] {
    const std::lock_guard lock(mutex_);
    kernels_.erase(key);
  };
  try {
    Result<Kernel> result = make();
    if (!result.ok()) forget();
    promise.set_value(result);
    return result;
  } catch (...) {
    forget();
    promise.set_exception(std::current_exception());
    throw;
  }
}

Jit::Jit(JitOptions options, std::span<const DeviceHeader> headers, std::string headers_hash,
         KernelMemory& memory)
    : options_(std::move(options)),
      headers_(headers),
      headers_hash_(std::move(headers_hash)),
      memory_(memory) {}

Key Jit::key(const Program& program, int nvrtc_version) const {
  Sha256 hash;
  hash.update_field(headers_hash_);
  if (program.headers != nullptr) hash.update_field(program.headers->hash);
  hash.update_field(program.header).update_field(program.expression);
  for (const std::string& option : compiler_options(program.arch)) hash.update_field(option);
  return hash.update_field(std::to_string(nvrtc_version)).finish();
}

NvrtcSearch Jit::search() const {
  return {options_.nvrtc.empty() ? nvrtc_places() : std::vector<std::string>{options_.nvrtc},
          options_.driver_version};
}

const Result<Nvrtc>& Jit::nvrtc() {
  return nvrtc_.get([&]() -> Result<Nvrtc> {
    if (options_.bundled_only) {
      return unsupported("jit: the context takes bundled kernels only; nothing is compiled in it");
    }
    const NvrtcSearch search = this->search();
    return find_nvrtc(search.places, search.driver_version);
  });
}

// The version of the NVRTC here, which is opened only if the version is not on record. It names
// kernels on disk: a wrong one would find another compiler's, and never misname new ones, which are
// named by the NVRTC that compiles them.
const Result<int>& Jit::version() {
  return version_.get([&]() -> Result<int> {
    if (disk().ok()) {
      if (const std::optional<int> known = known_version(disk().value(), search())) return *known;
    }
    FA3_RETURN_IF_ERROR(nvrtc().status());
    if (disk().ok()) remember(disk().value(), search(), nvrtc().value());
    return nvrtc().value().version();
  });
}

const Result<DiskCache>& Jit::disk() {
  return disk_.get([&]() -> Result<DiskCache> {
    if (options_.bundled_only) {
      return Status{FA3_IO_ERROR,
                    "kernel cache: a context that takes bundled kernels only has none"};
    }
    if (options_.cache_dir.empty()) {
      return Status{FA3_IO_ERROR,
                    "kernel cache: neither XDG_CACHE_HOME nor HOME names a folder for it; name one "
                    "in FA3_CACHE_DIR or the option cache_dir"};
    }
    return DiskCache::open(options_.cache_dir);
  });
}

Status Jit::clear() {
  if (DiskCache::absent(options_.cache_dir) && !options_.bundled_only) return {};
  FA3_RETURN_IF_ERROR(disk().status());
  return disk().value().clear();
}

const Result<Pack>& Jit::pack() {
  return pack_.get([&]() -> Result<Pack> {
    if (options_.kernel_pack.empty()) {
      return Status{FA3_IO_ERROR,
                    "kernel pack: none is named; name one in FA3_KERNEL_PACK or the option "
                    "kernel_pack"};
    }
    Result<Pack> pack = Pack::open(options_.kernel_pack);
    if (pack.ok() && options_.driver_version != 0 &&
        !loads(options_.driver_version, pack.value().nvrtc_version())) {
      pack = Status{FA3_IO_ERROR,
                    fmt::format("kernel pack: {} was made with NVRTC {}, too new for the driver's "
                                "CUDA {}; update the driver, or make the pack with an older NVRTC",
                                options_.kernel_pack, version_text(pack.value().nvrtc_version()),
                                version_text(options_.driver_version))};
    }
    return pack;
  });
}

// In memory the compiler's version does not matter: a kernel that is there runs.
Result<Kernel> Jit::get(const Program& program) {
  return memory_.get(key(program, 0), [&] { return find(program); });
}

// Kernels work without a cache or a bundle, but the time that costs is worth a warning.
void Jit::warn_of_places() {
  if (options_.bundled_only) return;
  if (warned_.exchange(true)) return;
  if (!disk().ok()) options_.logger.log(FA3_LOG_WARNING, "{}", disk().status().message);
  if (!options_.kernel_pack.empty() && !pack().ok()) {
    options_.logger.log(FA3_LOG_WARNING, "{}", pack().status().message);
  }
}

Result<Kernel> Jit::find(const Program& program) {
  warn_of_places();
  if (std::optional<Cubin> cubin = from_disk(program, version())) {
    return kernel(*std::move(cubin), KernelSource::kDisk);
  }
  if (std::optional<Cubin> cubin = from_pack(program)) {
    return kernel(*std::move(cubin), KernelSource::kPack);
  }
  if (!options_.bundled_only) return compile_once(program);
  FA3_RETURN_IF_ERROR(pack().status());
  return Status{FA3_JIT_FAILED,
                fmt::format("jit: {} of {} is not in {}, and the context takes bundled kernels "
                            "only; add it with `fa3 jit --pack`, or allow compiling",
                            program.expression, program.header, pack().value().path())};
}

Result<Kernel> Jit::get_compiled(const Program& program) {
  warn_of_places();
  if (!nvrtc().ok()) return compile_once(program);  // which says why not
  if (std::optional<Cubin> cubin = from_disk(program, nvrtc().value().version())) {
    return kernel(*std::move(cubin), KernelSource::kDisk);
  }
  return compile_once(program);
}

std::optional<Cubin> Jit::from_disk(const Program& program, const Result<int>& nvrtc_version) {
  if (!disk().ok() || !nvrtc_version.ok()) return std::nullopt;
  return disk().value().load(key(program, nvrtc_version.value()));
}

std::optional<Cubin> Jit::from_pack(const Program& program) {
  if (options_.kernel_pack.empty() || !pack().ok()) return std::nullopt;
  return pack().value().load(key(program, pack().value().nvrtc_version()));
}

// NVRTC would search the working directory for other headers, which no key covers.
Status Jit::check_header(const Program& program) const {
  const auto has = [&](std::span<const DeviceHeader> headers) {
    return std::any_of(headers.begin(), headers.end(),
                       [&](const DeviceHeader& header) { return program.header == header.path; });
  };
  if (has(headers_) || (program.headers != nullptr && has(program.headers->headers))) return {};
  return invalid(
      "jit: {} is not a file of the library's device code; need one that `fa3 jit --list --json` "
      "shows, or another of src/device as \"device/…\"",
      program.header);
}

// Of several processes that lack a kernel, one compiles it and the others find it on disk.
Result<Kernel> Jit::compile_once(const Program& program) {
  FA3_RETURN_IF_ERROR(check_header(program));
  if (!nvrtc().ok()) return Status{FA3_JIT_FAILED, nvrtc().status().message};
  if (!disk().ok()) return compile(program);
  const int version = nvrtc().value().version();
  const DiskCache::Turn turn = disk().value().take_turn(key(program, version), options_.patience);
  if (std::optional<Cubin> cubin = from_disk(program, version))
    return kernel(*std::move(cubin), KernelSource::kDisk);
  return compile(program);
}

Result<Kernel> Jit::compile(const Program& program) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  FA3_TRY(Compiled compiled, nvrtc().value().compile(program, headers_));
  options_.logger.log(FA3_LOG_INFO, "jit: compiled {} in {:.0f} ms", program.expression,
                      std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  if (disk().ok()) {
    const Status stored =
        disk().value().store(key(program, nvrtc().value().version()), compiled.cubin);
    if (!stored.ok()) options_.logger.log(FA3_LOG_WARNING, "{}", stored.message);
    remember(disk().value(), search(), nvrtc().value());  // once more, if it was wrong
  }
  return kernel(std::move(compiled.cubin), KernelSource::kCompiled);
}

Jit& LazyJit::get() {
  const auto open = [this]() -> Result<std::unique_ptr<Jit>> {
    const auto driver = Driver::system();
    if (driver.ok()) options_.driver_version = driver.value()->version();
    return std::make_unique<Jit>(options_);
  };
  return *jit_.get(open).value();
}

}  // namespace fa3::cuda
