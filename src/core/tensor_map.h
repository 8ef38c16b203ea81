// SPDX-License-Identifier: BSD-3-Clause
// tensor_map.h — the rules that TMA has for a tensor map, checked once for GPU and simulator.
#pragma once

#include <string>

#include "core/status.h"
#include "device/tensor_map.h"

namespace fa3 {

// INVALID_ARGUMENT naming the first field that breaks a rule, its value and the limit, followed by
// all fields.
Status check_tensor_map(const TensorMapSpec& spec);

// Every field of the spec on one line, for messages. Entries beyond the rank are left out.
std::string describe(const TensorMapSpec& spec);

}  // namespace fa3
