// SPDX-License-Identifier: BSD-3-Clause
// output.cpp — checked stdout.
#include "output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "error.h"

namespace fa3::cli {
namespace {

[[noreturn]] void fail_stdout() {
  const int error = errno;
  fail(kFailed, "stdout: cannot write ({}); free space or keep the reader open",
       std::strerror(error));
}

}  // namespace

void prepare_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // open() takes the lowest free number, which is fd; read-only, so that writing to it fails.
    if (open("/dev/null", O_RDONLY) < 0) return;
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_stdout();
}

void flush() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) fail_stdout();
}

}  // namespace fa3::cli
