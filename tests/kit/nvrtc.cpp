// SPDX-License-Identifier: BSD-3-Clause
// nvrtc.cpp — NVRTC found as a context finds it; PTX in addition to the cubin.
#include "tests/kit/nvrtc.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "backend/cuda/device_headers.h"
#include "core/env.h"
#include "core/shared_library.h"

namespace fa3::kit {
namespace {

template <class T>
T get(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message);
  return std::move(result).value();
}

cuda::Nvrtc find() {
  const std::string named = get(read_environment()).nvrtc;
  const Result<cuda::Nvrtc> found = cuda::find_nvrtc(
      named.empty() ? cuda::nvrtc_places() : std::vector<std::string>{named}, /*driver_version=*/0);
  if (!found.ok()) {
    throw std::runtime_error(found.status().message +
                             "; these tests need it: run `scripts/setup test`, configure again");
  }
  return found.value();
}

}  // namespace

const cuda::Nvrtc& nvrtc() {
  static const cuda::Nvrtc found = find();
  return found;
}

std::string nvrtc_build() {
  std::ifstream file(nvrtc().path(), std::ios::binary);
  const std::string mark = "Build cuda_";
  std::vector<char> chunk(1 << 20);
  std::string text;  // the end of what was read before, then the chunk
  while (file) {
    file.read(chunk.data(), std::ssize(chunk));
    text.append(chunk.data(), static_cast<size_t>(file.gcount()));
    const size_t at = text.find(mark);
    if (at != text.npos && (at + 256 < text.size() || !file)) {
      const size_t begin = at + mark.find("cuda_");
      return text.substr(begin, text.find_first_of(std::string_view("\0\n ", 3), begin) - begin);
    }
    text.erase(0, std::min(at, text.size() - std::min<size_t>(text.size(), 256)));
  }
  return "";
}

cuda::Compiled compile(const Program& program) {
  return get(nvrtc().compile(program, cuda::device_headers().headers));
}

Translation translate(const std::string& source, const std::vector<std::string>& expressions,
                      const HeaderSet* more) {
  const cuda::Nvrtc& rtc = nvrtc();
  const auto library = get(SharedLibrary::open(rtc.path()));
  using Size = cuda::nvrtcResult (*)(cuda::nvrtcProgram, size_t*);
  using Text = cuda::nvrtcResult (*)(cuda::nvrtcProgram, char*);
  const auto ptx_size = reinterpret_cast<Size>(get(library.find("nvrtcGetPTXSize")));
  const auto ptx_text = reinterpret_cast<Text>(get(library.find("nvrtcGetPTX")));

  std::vector<const char*> texts, names;
  for (const HeaderSet* const set : {&cuda::device_headers(), more}) {
    if (set == nullptr) continue;
    for (const DeviceHeader& header : set->headers) {
      texts.push_back(header.text);
      names.push_back(header.path);
    }
  }
  cuda::nvrtcProgram program = nullptr;
  const auto fetch = [&](auto size, auto text) {
    size_t bytes = 0;
    std::string out;
    if (size(program, &bytes) == cuda::NVRTC_SUCCESS) out.resize(bytes);
    if (text(program, out.data()) != cuda::NVRTC_SUCCESS) out.clear();
    return out;
  };
  const auto create = [&] {
    return rtc.nvrtcCreateProgram(&program, source.c_str(), "test.cu",
                                  static_cast<int>(texts.size()), texts.data(), names.data());
  };
  const std::vector<std::string> options = cuda::compiler_options(kHopperArch);
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  cuda::nvrtcResult result = create();
  for (const std::string& expression : expressions) {
    if (result != cuda::NVRTC_SUCCESS) break;
    result = rtc.nvrtcAddNameExpression(program, expression.c_str());
  }
  if (result == cuda::NVRTC_SUCCESS) {
    result = rtc.nvrtcCompileProgram(program, static_cast<int>(arguments.size()), arguments.data());
  }
  Translation out{fetch(ptx_size, ptx_text),
                  fetch(rtc.nvrtcGetCUBINSize, rtc.nvrtcGetCUBIN),
                  fetch(rtc.nvrtcGetProgramLogSize, rtc.nvrtcGetProgramLog),
                  {}};
  for (const std::string& expression : expressions) {
    const char* symbol = nullptr;
    if (rtc.nvrtcGetLoweredName(program, expression.c_str(), &symbol) != cuda::NVRTC_SUCCESS) break;
    out.symbols.push_back(symbol);
  }
  rtc.nvrtcDestroyProgram(&program);
  if (result != cuda::NVRTC_SUCCESS) {
    throw std::runtime_error(std::string(rtc.nvrtcGetErrorString(result)) + ": " + out.log);
  }
  return out;
}

}  // namespace fa3::kit
