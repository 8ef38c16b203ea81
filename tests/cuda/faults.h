// SPDX-License-Identifier: BSD-3-Clause
// faults.h — system calls of the library that end the process or fail, at a chosen one. The linker
// puts these in place of openat, write, fsync, renameat (--wrap; see CMakeLists.txt).
#pragma once

namespace fa3::cuda::test {

enum class Fault { kNone, kKill, kFail };

// At the `step`-th call from now (1 = the next): SIGKILL, or failure with errno = error. A write is
// half done by then, and fails for good.
void arm(Fault fault, int step, int error = 0);

// Has that call been made?
bool fired();

}  // namespace fa3::cuda::test
