// SPDX-License-Identifier: BSD-3-Clause
// once.h — a value made by the first caller that asks for it.
#pragma once

#include <mutex>
#include <optional>

#include "core/status.h"

namespace fa3 {

// Concurrent callers wait for it. A failure to make it is kept as well, except running out of
// memory: that throws, and the next caller tries again. (std::call_once would use thread-local
// variables of the C++ library, which may have to be allocated.)
template <class T>
class Once {
 public:
  template <class Make>
  Result<T>& get(const Make& make) {
    const std::lock_guard lock(mutex_);
    if (!value_) {
      Result<T> made = make();
      if (made.status().code == FA3_OUT_OF_MEMORY)
        throw Error(FA3_OUT_OF_MEMORY, made.status().message);
      value_.emplace(std::move(made));
    }
    return *value_;
  }

 private:
  std::mutex mutex_;
  std::optional<Result<T>> value_;
};

}  // namespace fa3
