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

// Keeps the message of a refusal for fa3_last_error() of this thread and returns its code. OK
// leaves the last message.
fa3_status record(const Status& status) noexcept;

// What the exception in flight means as a Status. Only inside a catch block.
Status current_exception_status() noexcept;

template <class Body>
fa3_status at_boundary(const Body& body) noexcept {
  try {
    return record(body());
  } catch (...) {
    return record(current_exception_status());
  }
}

}  // namespace fa3
