// SPDX-License-Identifier: BSD-3-Clause
// progress.cpp — draws the progress bar.
#include "progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "interrupt.h"
#include "output.h"

namespace fa3::cli {
namespace {

constexpr double kShowAfterSeconds = 1.0;
constexpr double kRedrawSeconds = 0.1;

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

std::string duration(double s) {
  const auto t = static_cast<int64_t>(s + 0.5);
  if (t < 3600) return fmt::format("{}:{:02}", t / 60, t % 60);
  return fmt::format("{}:{:02}:{:02}", t / 3600, t / 60 % 60, t % 60);
}

// "label [###...]  30 %  0:07 left" in less than `columns` columns.
std::string progress_line(const std::string& label, double fraction, double elapsed_s,
                          int columns) {
  const double left_s = fraction > 0 ? elapsed_s * (1 - fraction) / fraction : 0;
  const std::string eta = fraction > 0 ? duration(left_s) : "?";
  const std::string tail = fmt::format(" {:3.0f} %  {} left", 100 * fraction, eta);
  const int room = columns - 1 - static_cast<int>(label.size() + tail.size()) - 3;
  const int cells = std::clamp(room, 0, 40);
  if (cells < 5) return fmt::format("{}{}", label, tail);
  const int full = static_cast<int>(fraction * cells);
  return fmt::format("{} [{}{}]{}", label, std::string(full, '#'), std::string(cells - full, '.'),
                     tail);
}

}  // namespace

Progress::Progress(bool enabled) : enabled_(enabled && isatty(STDERR_FILENO)) { start(""); }

void Progress::start(std::string label) {
  finish();
  label_ = std::move(label);
  start_ = last_ = Clock::now();
}

bool Progress::report(int64_t done, int64_t total) {
  if (interrupted()) return false;
  if (!enabled_ || total <= 0) return true;
  const Clock::time_point now = Clock::now();
  if (seconds(now - start_) < kShowAfterSeconds || seconds(now - last_) < kRedrawSeconds)
    return true;
  last_ = now;
  drawn_ = true;
  const double fraction =
      std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const std::string line =
      progress_line(label_, fraction, seconds(now - start_), terminal_columns(STDERR_FILENO));
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  return true;
}

void Progress::finish() {
  if (!drawn_) return;
  drawn_ = false;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

int Progress::callback(void* progress, int64_t done, int64_t total) {
  return static_cast<Progress*>(progress)->report(done, total) ? 0 : 1;
}

}  // namespace fa3::cli
