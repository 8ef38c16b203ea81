// SPDX-License-Identifier: BSD-3-Clause
// output.cpp — checked stdout.
#include "output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "error.h"

namespace fa3::cli {
namespace {

[[noreturn]] void fail_stdout() {
  const int error = errno;
  if (error == EPIPE) fail(kClosedPipe, "stdout: nobody reads it any more");
  fail(kFailed, "stdout: cannot write ({}); free space or keep the reader open",
       std::strerror(error));
}

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

// In columns: characters of UTF-8, each of which takes one in our texts.
size_t width_of(std::string_view line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), begins_character));
}

// Where a broken line goes on: below its value, which follows two blanks or more, else below its
// beginning.
size_t margin_of(std::string_view line, size_t columns) {
  const size_t name = line.find_first_not_of(' ');
  if (name == std::string_view::npos) return 0;
  const size_t gap = line.find("  ", name);
  const size_t value = gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
  return value <= columns / 2 ? value : name;
}

// The last blank of a line that leaves at most `room` columns before it, and words on both sides;
// else the first one; npos when there is none.
size_t break_of(std::string_view line, size_t room) {
  size_t best = std::string_view::npos, column = 0;
  const size_t name = line.find_first_not_of(' ');
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ' ' && i > name && (column <= room || best == std::string_view::npos)) best = i;
    if (begins_character(line[i])) ++column;
  }
  return best;
}

std::string fold_line(std::string_view line, size_t columns) {
  const std::string margin(margin_of(line, columns), ' ');
  std::string folded, rest(line);
  while (width_of(rest) > columns) {
    const size_t space = break_of(rest, columns);
    if (space == std::string::npos) break;
    folded += rest.substr(0, space) + "\n";
    rest = margin + rest.substr(space + 1);
  }
  return folded + rest;
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

void end_by_closed_pipe() {
  std::signal(SIGPIPE, SIG_DFL);
  std::raise(SIGPIPE);
  _exit(kClosedPipe);  // where the signal is blocked
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_stdout();
}

void print_text(std::string_view text) { print(as_shown(text)); }

std::string as_shown(std::string_view text) {
  if (!isatty(STDOUT_FILENO)) return std::string(text);
  return fold(text, static_cast<size_t>(terminal_columns(STDOUT_FILENO)));
}

int terminal_columns(int fd) {
  winsize size = {};
  const bool known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string fold(std::string_view text, size_t columns) {
  std::string folded;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    folded += fold_line(text.substr(begin, end - begin), columns);
    if (end < text.size()) folded += '\n';
    begin = end + 1;
  }
  return folded;
}

void flush() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) fail_stdout();
}

}  // namespace fa3::cli
