// SPDX-License-Identifier: BSD-3-Clause
// boundary.cpp — the thread's last message, and what exceptions mean to a C caller.
#include "api/boundary.h"

#include <new>
#include <system_error>

namespace fa3 {
namespace {

// Short enough for std::string's own buffer where it must not allocate.
constexpr const char kNoMemory[] = "out of memory";

thread_local std::string last_message;

}  // namespace

fa3_status record(const Status& status) noexcept {
  if (status.ok()) return FA3_OK;
  try {
    last_message = status.message;
  } catch (...) {
    last_message = kNoMemory;  // no room even for the message; fits the string's own buffer
  }
  return status.code;
}

Status current_exception_status() noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return error.status();
    } catch (const std::bad_alloc&) {
      return {FA3_OUT_OF_MEMORY, kNoMemory};
    } catch (const std::exception& error) {
      return {FA3_INTERNAL, fmt::format("internal: unexpected {}; please report it", error.what())};
    } catch (...) {
      return {FA3_INTERNAL, "internal: unknown exception; please report it"};
    }
  } catch (...) {
    return {FA3_OUT_OF_MEMORY, kNoMemory};
  }
}

}  // namespace fa3

const char* fa3_last_error(void) { return fa3::last_message.c_str(); }

const char* fa3_status_name(fa3_status status) {
  switch (status) {
    case FA3_OK:
      return "OK";
    case FA3_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case FA3_UNSUPPORTED:
      return "UNSUPPORTED";
    case FA3_WORKSPACE_TOO_SMALL:
      return "WORKSPACE_TOO_SMALL";
    case FA3_JIT_FAILED:
      return "JIT_FAILED";
    case FA3_CUDA_ERROR:
      return "CUDA_ERROR";
    case FA3_IO_ERROR:
      return "IO_ERROR";
    case FA3_OUT_OF_MEMORY:
      return "OUT_OF_MEMORY";
    case FA3_INTERNAL:
      return "INTERNAL";
    case FA3_CANCELLED:
      return "CANCELLED";
  }
  return "UNKNOWN";
}
