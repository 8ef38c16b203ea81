// SPDX-License-Identifier: BSD-3-Clause
// log.h — the one way in which the library speaks: the callback of the context. Silent without one.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "fa3/fa3.h"

namespace fa3 {

struct Logger {
  fa3_log_fn fn = nullptr;
  void* user = nullptr;
  fa3_log_level level = FA3_LOG_WARNING;  // the most detailed level reported

  template <class... Args>
  void log(fa3_log_level line_level, fmt::format_string<Args...> format, Args&&... args) const {
    if (fn == nullptr || line_level > level) return;
    fn(user, line_level, fmt::format(format, std::forward<Args>(args)...).c_str());
  }
};

}  // namespace fa3
