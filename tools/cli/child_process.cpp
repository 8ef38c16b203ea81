// SPDX-License-Identifier: BSD-3-Clause
// child_process.cpp — runs work in a forked child and kills it when it takes too long.
#include "child_process.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

namespace fa3::cli {
namespace {

constexpr int kWorked = 0, kThrew = 1, kUnheard = 2;

void write_line(int pipe, std::string line) {
  line += '\n';
  for (size_t at = 0; at < line.size();) {
    const ssize_t written = write(pipe, line.data() + at, line.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) std::_Exit(kUnheard);
    at += static_cast<size_t>(written);
  }
}

// Ends without the destructors of the process, which could hang on a GPU that failed.
[[noreturn]] void be_child(const ChildWork& task, int pipe, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // Ctrl-C ends the parent, and with it the child
  if (getppid() != parent) std::_Exit(kUnheard);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGTERM, SIG_DFL);
  int code = kWorked;
  try {
    task.work([pipe](const std::string& line) { write_line(pipe, line); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fa3: %s\n", error.what());
    code = kThrew;
  }
  std::fflush(stdout);
  std::_Exit(code);
}

// Passes on what the child sends until it closes the pipe. False: it took too long.
bool listen(const ChildWork& task, int pipe) {
  std::string text;
  while (true) {
    pollfd ready{pipe, POLLIN, 0};
    const int events = poll(&ready, 1, 1000 * task.seconds());
    if (events < 0 && errno == EINTR) continue;
    if (events == 0) return false;
    char part[4096];
    const ssize_t got = ::read(pipe, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(part, static_cast<size_t>(got));
    for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
      const std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      task.received(line);
    }
  }
}

std::string fate(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return "was ended by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  const int code = WEXITSTATUS(status);
  return code == kWorked ? "" : "ended with status " + std::to_string(code);
}

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error("no " + what + " (" + std::strerror(errno) +
                           "); end other programs, or raise the limit (ulimit -a)");
}

}  // namespace

std::string run_in_child(const ChildWork& task) {
  int ends[2];
  if (pipe(ends) != 0) refuse("pipe to a child process");
  std::fflush(stdout);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    const int error = errno;
    close(ends[0]);
    close(ends[1]);
    errno = error;
    refuse("child process");
  }
  if (child == 0) {
    close(ends[0]);
    be_child(task, ends[1], parent);
  }
  close(ends[1]);
  const bool in_time = listen(task, ends[0]);
  close(ends[0]);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return in_time ? fate(status) : "hung and was ended";
}

}  // namespace fa3::cli
