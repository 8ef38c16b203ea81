// SPDX-License-Identifier: BSD-3-Clause
// interrupt.cpp — the signal handler and the flag it sets.
#include "interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "error.h"

namespace fa3::cli {
namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "a signal handler may touch lock-free atomics only");

void end_at_once(int) {
  constexpr char kMessage[] = "\nfa3: interrupted\n";
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
  _exit(kInterrupted);
}

void set_flag(int) { g_interrupted = true; }

// What is ignored stays so: nohup has the program outlive its terminal.
void install(void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction present = {};
    sigaction(signal, nullptr, &present);
    if (present.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

}  // namespace

void install_interrupt_handler() { install(end_at_once, SA_RESTART); }

// Once: the second one takes its default action.
void defer_interrupts() { install(set_flag, SA_RESTART | SA_RESETHAND); }

bool interrupted() { return g_interrupted; }

void stop_if_interrupted() {
  if (interrupted()) fail(kInterrupted, "interrupted; nothing written");
}

}  // namespace fa3::cli
