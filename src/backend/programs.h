// SPDX-License-Identifier: BSD-3-Clause
// programs.h — the kernels that the library knows by name: what `fa3 jit` compiles ahead of time.
#pragma once

#include <vector>

#include "backend/machine.h"

namespace fa3 {

const std::vector<Program>& known_programs();

}  // namespace fa3
