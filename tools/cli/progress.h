// SPDX-License-Identifier: BSD-3-Clause
// progress.h — a progress bar with the time left, on stderr, for work of over a second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace fa3::cli {

// One line, redrawn in place, at most ten times a second. Silent unless stderr is a terminal.
class Progress {
 public:
  explicit Progress(bool enabled);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Begins a piece of work; `label` is printed before the bar.
  void start(std::string label);
  // Draws when it is time to. True = go on, false = the user asked to stop. One call at a time.
  bool report(int64_t done, int64_t total);
  // Erases the bar.
  void finish();

  // The fa3_progress_fn of a context whose progress_user is a Progress.
  static int callback(void* progress, int64_t done, int64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  bool enabled_;
  bool drawn_ = false;
  std::string label_;
  Clock::time_point start_;
  Clock::time_point last_;
};

}  // namespace fa3::cli
