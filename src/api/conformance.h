// SPDX-License-Identifier: BSD-3-Clause
// conformance.h — what libfa3 and libfa3_conformance offer each other. They are built together, so
// C++ types cross; each asks for the other's version before it uses anything else.
//
// Statuses cross as values, and exceptions as they are: libstdc++ tells their types by name, so
// that a hidden type_info in each library does not matter. Contexts, kernels, the driver and NVRTC
// are libfa3's alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/programs.h"
#include "core/status.h"
#include "fa3/conformance.h"
#include "runtime/gpu_runtime.h"

namespace fa3 {

// What a GPU runs with, as texts ("13.0"); "" = none.
struct GpuVersions {
  std::string driver, nvrtc;
};

// Offered by libfa3.
struct ConformanceApi {
  Result<std::unique_ptr<GpuRuntime>> (*open_simulator)(uint64_t seed);
  // The first GPU that has kernels, with the kernels of the context. `versions` is filled in as far
  // as known.
  Result<std::unique_ptr<GpuRuntime>> (*open_gpu)(fa3_context& context, GpuVersions& versions);
  // On the context's threads, so that the GPU need not wait for one program after another. One that
  // does not compile says so where it is used.
  void (*compile)(fa3_context& context, const std::vector<Program>& programs);
  // As read_struct (api/args.h), keep_text, record and record_exception (api/boundary.h).
  Status (*read_struct)(const char* where, const void* source, size_t first_size, void* copy,
                        size_t size);
  const char* (*keep_report)(std::string text);
  fa3_status (*record)(Status&& status) noexcept;
  fa3_status (*record_exception)() noexcept;
};

// Offered by libfa3_conformance, which libfa3 opens on demand.
struct ConformanceLibrary {
  const char* version;
  fa3_status (*run)(const ConformanceApi& api, fa3_context* context,
                    const fa3_conformance_args* args, const char** report) noexcept;
  const HeaderSet& (*device_headers)();
  const std::vector<NamedProgram>& (*samples)();
};

// Opens libfa3_conformance.so once per process. UNSUPPORTED with the reason when there is none or
// it is of another version.
Result<const ConformanceLibrary*> load_conformance();

}  // namespace fa3

extern "C" {

// Of libfa3: NULL, with fa3_last_error(), for a libfa3_conformance of another version.
FA3_API const fa3::ConformanceApi* fa3_private_conformance_api(const char* version);

// Of libfa3_conformance.
FA3_API const fa3::ConformanceLibrary* fa3_private_conformance_library(void);

}  // extern "C"
