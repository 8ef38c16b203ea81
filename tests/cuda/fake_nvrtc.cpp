// SPDX-License-Identifier: BSD-3-Clause
// fake_nvrtc.cpp — a libnvrtc for tests: "compiles" a program into its source and options, and
// counts. FAKE_NVRTC_VERSION is major·1000 + minor·10 (13000); an expression with "broken" in it
// does not compile; FAKE_NVRTC_MS is how long a compilation takes, FAKE_NVRTC_FILE one that it
// makes when it begins, and then waits for to be gone.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "backend/cuda/driver_api.h"

using namespace fa3::cuda;  // NOLINT: the functions below are the namespace's declarations

struct _nvrtcProgram {
  std::string source, expression;
};

namespace {

std::atomic<int> compilations{0}, openings{0}, headers_given{0};
constexpr char kLog[] = "fake log: 'broken' is not declared";

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

}  // namespace

extern "C" {

int fake_nvrtc_compilations() { return compilations; }
int fake_nvrtc_openings() { return openings; }
int fake_nvrtc_headers() { return headers_given; }  // of the latest program

const char* nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "NVRTC_FAKE";
}
nvrtcResult nvrtcVersion(int* major, int* minor) {
  ++openings;  // called once when the library is opened
  const int version = number("FAKE_NVRTC_VERSION", 13000);
  *major = version / 1000;
  *minor = version % 1000 / 10;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int headers,
                               const char* const*, const char* const*) {
  headers_given = headers;
  *program = new _nvrtcProgram{source, ""};
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char* expression) {
  program->expression = expression;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  const auto pause = std::chrono::milliseconds(number("FAKE_NVRTC_MS", 0));
  const char* const file = std::getenv("FAKE_NVRTC_FILE");
  ++compilations;
  if (file != nullptr) {
    const std::string path = file;  // the variable may go
    std::ofstream(path).close();
    while (access(path.c_str(), F_OK) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(pause);
  const bool broken = program->expression.find("broken") != std::string::npos;
  return broken ? nvrtcResult{NVRTC_ERROR_COMPILATION} : nvrtcResult{NVRTC_SUCCESS};
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t* bytes) {
  *bytes = sizeof kLog;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* log) {
  std::memcpy(log, kLog, sizeof kLog);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* bytes) {
  *bytes = program->source.size() + program->expression.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  const std::string image = program->source + program->expression;
  std::memcpy(cubin, image.data(), image.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char*, const char** symbol) {
  *symbol = program->expression.c_str();
  return NVRTC_SUCCESS;
}

}  // extern "C"
