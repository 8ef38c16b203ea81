// SPDX-License-Identifier: BSD-3-Clause
// nvrtc.cpp — where NVRTC is searched for, which one is used, and one compilation.
#include "backend/cuda/nvrtc.h"

#include <unistd.h>

#include "backend/cuda/driver.h"

namespace fa3::cuda {
namespace {

Status find_functions(const SharedLibrary& library, NvrtcFunctions& functions) {
#define FA3_FIND(name, parameters)                                        \
  {                                                                       \
    FA3_TRY(void* const address, library.find(#name));                    \
    functions.name = reinterpret_cast<decltype(functions.name)>(address); \
  }
  FA3_NVRTC_FUNCTIONS(FA3_FIND)
  FA3_FIND(nvrtcGetErrorString, ())
#undef FA3_FIND
  return {};
}

// One program within NVRTC.
class Compilation {
 public:
  explicit Compilation(const NvrtcFunctions& nvrtc) : nvrtc_(nvrtc) {}
  ~Compilation() { nvrtc_.nvrtcDestroyProgram(&program_); }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  Result<Compiled> run(const Program& program, std::span<const DeviceHeader> headers) {
    const std::string source = fmt::format("#include \"{}\"\n", program.header);
    std::vector<const char*> texts, names;
    const auto add = [&](std::span<const DeviceHeader> more) {
      for (const DeviceHeader& header : more) {
        texts.push_back(header.text);
        names.push_back(header.path);
      }
    };
    add(headers);
    if (program.headers != nullptr) add(program.headers->headers);
    FA3_RETURN_IF_ERROR(
        check(nvrtc_.nvrtcCreateProgram(&program_, source.c_str(), "fa3.cu",
                                        static_cast<int>(texts.size()), texts.data(), names.data()),
              program));
    FA3_RETURN_IF_ERROR(
        check(nvrtc_.nvrtcAddNameExpression(program_, program.expression.c_str()), program));
    const std::vector<std::string> options = compiler_options(program.arch);
    std::vector<const char*> arguments;
    for (const std::string& option : options) arguments.push_back(option.c_str());
    const nvrtcResult result =
        nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(arguments.size()), arguments.data());
    Compiled compiled;
    compiled.log = log();
    if (result != NVRTC_SUCCESS) {
      return Status{FA3_JIT_FAILED,
                    fmt::format("jit: {} of {} does not compile ({}): {}", program.expression,
                                program.header, nvrtc_.nvrtcGetErrorString(result), compiled.log)};
    }
    const char* symbol = nullptr;
    FA3_RETURN_IF_ERROR(
        check(nvrtc_.nvrtcGetLoweredName(program_, program.expression.c_str(), &symbol), program));
    compiled.cubin.symbol = symbol;
    size_t bytes = 0;
    FA3_RETURN_IF_ERROR(check(nvrtc_.nvrtcGetCUBINSize(program_, &bytes), program));
    compiled.cubin.image.resize(bytes);
    FA3_RETURN_IF_ERROR(
        check(nvrtc_.nvrtcGetCUBIN(program_, compiled.cubin.image.data()), program));
    return compiled;
  }

 private:
  Status check(nvrtcResult result, const Program& program) const {
    if (result == NVRTC_SUCCESS) return {};
    return {FA3_JIT_FAILED, fmt::format("jit: NVRTC refuses {} of {}: {}", program.expression,
                                        program.header, nvrtc_.nvrtcGetErrorString(result))};
  }

  std::string log() const {
    size_t bytes = 0;  // with the final NUL
    if (nvrtc_.nvrtcGetProgramLogSize(program_, &bytes) != NVRTC_SUCCESS || bytes == 0) return "";
    std::string text(bytes, '\0');
    if (nvrtc_.nvrtcGetProgramLog(program_, text.data()) != NVRTC_SUCCESS) return "";
    text.pop_back();
    return text;
  }

  const NvrtcFunctions& nvrtc_;
  nvrtcProgram program_ = nullptr;
};

Status check_fit(const Nvrtc& nvrtc, int driver_version) {
  if (driver_version == 0 || loads(driver_version, nvrtc.version())) return {};
  return unsupported("{} is version {}, too new for the driver's CUDA {}", nvrtc.path(),
                     version_text(nvrtc.version()), version_text(driver_version));
}

}  // namespace

std::vector<std::string> compiler_options(const std::string& arch) {
  return {"--gpu-architecture=" + arch, "--std=c++20", "--device-as-default-execution-space",
          "--ptxas-options=-v"};
}

bool loads(int driver_version, int nvrtc_version) {
  return nvrtc_version / 1000 <= driver_version / 1000;
}

Result<Nvrtc> Nvrtc::open(const std::string& name) {
  FA3_TRY(const SharedLibrary library, SharedLibrary::open(name));
  Nvrtc nvrtc;
  nvrtc.path_ = library.path();
  FA3_RETURN_IF_ERROR(find_functions(library, nvrtc));
  int major = 0, minor = 0;
  const nvrtcResult result = nvrtc.nvrtcVersion(&major, &minor);
  if (result != NVRTC_SUCCESS) {
    return unsupported("{} does not tell its version ({})", nvrtc.path_,
                       nvrtc.nvrtcGetErrorString(result));
  }
  nvrtc.version_ = 1000 * major + 10 * minor;
  if (nvrtc.version_ < kLeastVersion) {
    return unsupported("{} is version {}, need {} or newer", nvrtc.path_,
                       version_text(nvrtc.version_), version_text(kLeastVersion));
  }
  return nvrtc;
}

Result<Compiled> Nvrtc::compile(const Program& program,
                                std::span<const DeviceHeader> headers) const {
  return Compilation(*this).run(program, headers);
}

std::vector<std::string> nvrtc_places() {
  std::vector<std::string> places = {"libnvrtc.so.13", "libnvrtc.so.12"};
  const auto add_existing = [&](const std::string& path) {
    if (access(path.c_str(), F_OK) == 0) places.push_back(path);
  };
  add_existing("/usr/local/cuda/lib64/libnvrtc.so.13");
  add_existing("/usr/local/cuda/lib64/libnvrtc.so.12");
  // site-packages/fa3[/lib]/libfa3.so, next to site-packages/nvidia.
  const std::string folder = own_folder();
  for (const char* up : {"/..", "/../.."}) {
    add_existing(folder + up + "/nvidia/cu13/lib/libnvrtc.so.13");
    add_existing(folder + up + "/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  }
  return places;
}

Result<Nvrtc> find_nvrtc(const std::vector<std::string>& places, int driver_version) {
  std::string reasons;
  for (const std::string& place : places) {
    const Result<Nvrtc> nvrtc = Nvrtc::open(place);
    const Status status = nvrtc.ok() ? check_fit(nvrtc.value(), driver_version) : nvrtc.status();
    if (status.ok()) return nvrtc;
    reasons += (reasons.empty() ? "" : "; ") + status.message;
  }
  return unsupported(
      "jit: no usable NVRTC: {}; install CUDA's NVRTC, {} or newer and no newer than the driver "
      "(pip: nvidia-cuda-nvrtc), name the library in FA3_NVRTC, or use a kernel pack",
      reasons, version_text(kLeastVersion));
}

}  // namespace fa3::cuda
