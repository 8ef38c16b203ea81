// SPDX-License-Identifier: BSD-3-Clause
// device_headers.h — the device code that is embedded in the library: src/device as it was when
// the library was built, so that compiling a kernel reads nothing from an install path.
#pragma once

#include "runtime/header_set.h"

namespace fa3::cuda {

// This library's.
const HeaderSet& device_headers();

}  // namespace fa3::cuda
