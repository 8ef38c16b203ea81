// SPDX-License-Identifier: BSD-3-Clause
// callbacks.h — what a context calls in Python, from any thread: log and progress.
#pragma once
#include <cstdlib>
#include <exception>
#include <map>
#include <string_view>

#include "fields.h"

namespace fa3::python {

using LogFunction = nb::typed<nb::callable, void(int, std::string)>;
using ProgressFunction = nb::typed<nb::callable, void(std::int64_t, std::int64_t)>;

// All members under the interpreter's lock.
struct Callbacks {
  nb::object log, progress;
  std::map<int, std::exception_ptr> raised;  // by progress, under the number that stopped the run
  int last_number = 0;

  // Levels are those of Python's module logging: 40 error, 30 warning, 20 info, 10 debug.
  static fa3_log_level level_from(int level) {
    return level >= 40 ? FA3_LOG_ERROR : fa3_log_level(5 - (level < 10 ? 10 : level) / 10);
  }
  static void on_log(void* user, fa3_log_level level, const char* message) {
    nb::gil_scoped_acquire lock;
    const nb::object call = static_cast<Callbacks*>(user)->log;
    if (!call.is_valid()) return;
    try {
      call(50 - 10 * int(level), in_python(message));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("a context's log function");
    }
  }
  static int on_progress(void* user, std::int64_t done, std::int64_t total) {
    nb::gil_scoped_acquire lock;
    auto& self = *static_cast<Callbacks*>(user);
    const nb::object call = self.progress;
    if (!call.is_valid()) return 0;
    try {
      call(done, total);
      return 0;
    } catch (nb::python_error&) {
      self.last_number = self.last_number % (1 << 30) + 1;
      self.raised[self.last_number] = std::current_exception();
      return self.last_number;
    }
  }
  // What progress raised in the run whose error is this one.
  std::exception_ptr take(std::string_view error) {
    static constexpr std::string_view kBefore = "by returning ";
    const std::size_t at = error.find(kBefore);
    if (at == std::string_view::npos) return nullptr;
    const auto found = raised.find(std::atoi(error.data() + at + kBefore.size()));
    if (found == raised.end()) return nullptr;
    const std::exception_ptr exception = found->second;
    raised.erase(found);
    return exception;
  }
};

}  // namespace fa3::python
