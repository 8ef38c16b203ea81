// SPDX-License-Identifier: BSD-3-Clause
// faults.cpp — the calls in place of the system's.
#include "faults.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace fa3::cuda::test {
namespace {

Fault armed = Fault::kNone;
int steps_left = 0;
int error_number = 0;
bool has_fired = false;

// Is this call the one? Kills the process on request.
bool fails_now() {
  if (armed == Fault::kNone || --steps_left > 0) return false;
  has_fired = true;
  if (armed == Fault::kKill) raise(SIGKILL);
  errno = error_number;
  return true;
}

}  // namespace

void arm(Fault fault, int step, int error) {
  armed = fault;
  steps_left = step;
  error_number = error;
  has_fired = false;
}

bool fired() { return has_fired; }

}  // namespace fa3::cuda::test

using namespace fa3::cuda::test;  // NOLINT: what follows is the linker's, outside any namespace

extern "C" {

int __real_openat(int folder, const char* name, int flags, ...);
ssize_t __real_write(int fd, const void* bytes, size_t count);
int __real_fsync(int fd);
int __real_renameat(int from_folder, const char* from, int to_folder, const char* to);

int __wrap_openat(int folder, const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return fails_now() ? -1 : __real_openat(folder, name, flags, mode);
}

// The first half is written before the fault; a failure then stays.
ssize_t __wrap_write(int fd, const void* bytes, size_t count) {
  if (armed != Fault::kNone && steps_left == 1 && count > 1) {
    const ssize_t half = __real_write(fd, bytes, count / 2);
    if (armed == Fault::kKill) fails_now();
    return half;
  }
  return fails_now() ? -1 : __real_write(fd, bytes, count);
}

int __wrap_fsync(int fd) { return fails_now() ? -1 : __real_fsync(fd); }

int __wrap_renameat(int from_folder, const char* from, int to_folder, const char* to) {
  return fails_now() ? -1 : __real_renameat(from_folder, from, to_folder, to);
}

}  // extern "C"
