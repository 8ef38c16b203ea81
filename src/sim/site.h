// SPDX-License-Identifier: BSD-3-Clause
// site.h — lines of kernel source as small numbers, so that shadow cells can remember them.
#pragma once

#include <string>

#include "device/types.h"

namespace fa3::sim {

// An instruction at a line; `op` and `file` are string literals of the program.
struct Site {
  const char* op;
  const char* file;
  int line;
};

// The number of a site, the same in all threads of the process. Past 65,535 sites all new ones
// share number 0, "unknown".
u16 intern(const char* op, Where where);
const Site& site(u16 id);
std::string text(Where where);  // "step.h:71"

}  // namespace fa3::sim
