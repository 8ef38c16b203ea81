// SPDX-License-Identifier: BSD-3-Clause
// conformance.cpp — libfa3_conformance.so: opened on demand, and given what it needs of this
// library; fa3_selftest, which runs it.
#include "api/conformance.h"

#include <cstring>

#include "api/args.h"
#include "api/boundary.h"
#include "api/context.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/readiness.h"
#include "backend/cuda/runtime.h"
#include "backend/sim/runtime.h"
#include "core/shared_library.h"

namespace fa3 {
namespace {

constexpr const char* kLibrary = "libfa3_conformance.so";

Status check_version(const char* version) {
  if (std::strcmp(version, FA3_BUILD_VERSION) == 0) return {};
  return unsupported(
      "conformance: {} is of version {}, libfa3.so of {}; build and install both together",
      kLibrary, version, FA3_BUILD_VERSION);
}

// ---- What it is given ---------------------------------------------------------------------------

Result<std::unique_ptr<GpuRuntime>> open_simulator(uint64_t seed) {
  sim::SimRuntime::Settings settings;
  settings.seed = seed;
  settings.exact_sums = true;
  FA3_TRY(std::unique_ptr<GpuRuntime> runtime, sim::SimRuntime::open(settings));
  return runtime;
}

Result<std::unique_ptr<GpuRuntime>> open_gpu(fa3_context& context, GpuVersions& versions) {
  FA3_TRY(const cuda::Driver* const driver, cuda::Driver::system());
  FA3_TRY(const cuda::GpuInfo gpu, cuda::first_gpu(*driver));
  versions.driver = cuda::version_text(driver->version());
  cuda::Jit& jit = context.jit();
  if (jit.nvrtc().ok()) {
    versions.nvrtc = cuda::version_text(jit.nvrtc().value().version());
  } else if (!jit.pack().ok()) {
    return jit.nvrtc().status();
  }
  FA3_TRY(std::unique_ptr<GpuRuntime> runtime, cuda::CudaRuntime::open(*driver, jit, gpu.ordinal));
  return runtime;
}

void compile(fa3_context& context, const std::vector<Program>& programs) {
  const Executor executor = context.executor.reporting(nullptr, nullptr);
  executor.run(static_cast<int64_t>(programs.size()), [&](const TaskContext& task) {
    static_cast<void>(context.jit().get(programs[static_cast<size_t>(task.index)]).ok());
  });
}

const char* keep_report(std::string text) {
  return keep_text(Text::kSelftestReport, std::move(text));
}

constexpr ConformanceApi kApi{&open_simulator, &open_gpu, &compile,         &read_struct,
                              &keep_report,    &record,   &record_exception};

// ---- The library --------------------------------------------------------------------------------

Result<const ConformanceLibrary*> load() {
  const Result<SharedLibrary> library = SharedLibrary::open_beside(kLibrary);
  if (!library.ok()) {
    return unsupported("conformance: {} could not be opened ({}); install it beside libfa3.so",
                       kLibrary, library.status().message);
  }
  FA3_TRY(void* const entry, library.value().find("fa3_private_conformance_library"));
  const ConformanceLibrary* const opened =
      reinterpret_cast<decltype(&fa3_private_conformance_library)>(entry)();
  FA3_RETURN_IF_ERROR(check_version(opened->version));
  return opened;
}

// ---- fa3_selftest -------------------------------------------------------------------------------

constexpr size_t kSelftestArgsFirstSize = 48;  // in the first release; never changes
static_assert(sizeof(fa3_selftest_args) >= kSelftestArgsFirstSize, "fields are only ever appended");

Result<fa3_selftest_args> read_selftest_args(const fa3_selftest_args* given) {
  fa3_selftest_args args{};
  if (given != nullptr) {
    FA3_RETURN_IF_ERROR(
        read_struct("selftest: args", given, kSelftestArgsFirstSize, &args, sizeof args));
  }
  return args;
}

// Hands a result on to a callback that takes the struct of fa3.h.
int hand_on(void* user, const fa3_conformance_result* result) {
  const fa3_selftest_args& args = *static_cast<const fa3_selftest_args*>(user);
  const fa3_case_result given{
      sizeof(fa3_case_result), result->name,        result->status, result->done,
      result->total,           result->device_lost, result->message};
  return args.on_case(args.on_case_user, &given);
}
static_assert(int{FA3_CASE_PASSED} == int{FA3_CONFORMANCE_PASSED} &&
              int{FA3_CASE_FAILED} == int{FA3_CONFORMANCE_FAILED} &&
              int{FA3_CASE_SKIPPED} == int{FA3_CONFORMANCE_SKIPPED});

fa3_conformance_args conformance_args(fa3_selftest_args& args) {
  fa3_conformance_args same{};
  same.struct_size = sizeof same;
  same.filter = args.filter;
  same.seed = args.seed;
  if (args.on_case != nullptr) same.on_case = &hand_on;
  same.on_case_user = &args;
  same.backend = args.backend;
  same.list = args.list;
  same.measure = args.measure;
  same.first = args.first;
  return same;
}

}  // namespace

Result<const ConformanceLibrary*> load_conformance() {
  static const Result<const ConformanceLibrary*> loaded = load();
  return loaded;
}

}  // namespace fa3

const fa3::ConformanceApi* fa3_private_conformance_api(const char* version) {
  const fa3_status status = FA3_BOUNDARY({ return fa3::check_version(version); });
  return status == FA3_OK ? &fa3::kApi : nullptr;
}

fa3_status fa3_selftest(fa3_context* context, const fa3_selftest_args* given, const char** report) {
  if (report != nullptr) *report = nullptr;
  fa3_selftest_args args{};
  const fa3::ConformanceLibrary* library = nullptr;
  const fa3_status status = FA3_BOUNDARY({
    FA3_TRY(args, fa3::read_selftest_args(given));
    FA3_TRY(library, fa3::load_conformance());
    return fa3::Status{};
  });
  if (status != FA3_OK) return status;
  const fa3_conformance_args same = fa3::conformance_args(args);
  return library->run(fa3::kApi, context, &same, report);
}
