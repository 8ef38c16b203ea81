// SPDX-License-Identifier: BSD-3-Clause
// boundary.h — where Status and exceptions become fa3_status and fa3_last_error(). Nowhere else.
#pragma once

#include <string>

#include "core/status.h"

// The body of an exported function that can fail: a block that returns fa3::Status. Nothing is
// thrown across the ABI.
//   return FA3_BOUNDARY({ FA3_RETURN_IF_ERROR(…); return fa3::Status{}; });
#define FA3_BOUNDARY(...) ::fa3::at_boundary([&]() -> ::fa3::Status __VA_ARGS__)

namespace fa3 {

// The texts that a thread keeps for its caller until its next call, in addition to the last error.
enum class Text { kReason, kJitReport, kSelftestReport, kEnvironment, kCount };

// Keeps one for the calling thread. Throws std::bad_alloc.
const char* keep_text(Text which, std::string text);

// Keeps the message of a refusal for fa3_last_error() of this thread and returns its code;
// OUT_OF_MEMORY where it cannot be kept. OK leaves the last message.
fa3_status record(Status&& status) noexcept;

// The same for the exception in flight. Only inside a catch block.
fa3_status record_exception() noexcept;

template <class Body>
fa3_status at_boundary(const Body& body) noexcept {
  try {
    return record(body());
  } catch (...) {
    return record_exception();
  }
}

}  // namespace fa3
