// SPDX-License-Identifier: BSD-3-Clause
// call_progress.h — one progress for a call that is several operations, each of which counts units
// of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/executor.h"

namespace fa3 {

class CallProgress {
 public:
  // executor: the call's, whose callback is told. all: the weights of all operations together.
  CallProgress(const Executor& executor, double all) : executor_(executor), all_(all) {}

  // The executor of the next operation, for as long as this object lives.
  Executor next(double weight) {
    before_ = end_;
    weights_ += weight;
    end_ = all_ > 0 ? static_cast<int64_t>(kTotal * std::min(weights_ / all_, 1.0)) : kTotal;
    return executor_.reporting(&CallProgress::report, this);
  }

 private:
  static constexpr int64_t kTotal = 10000;

  // Reports come one at a time, and rise.
  static int report(void* self, int64_t done, int64_t total) {
    auto& p = *static_cast<CallProgress*>(self);
    const double part = static_cast<double>(done) / static_cast<double>(total);
    const int64_t at =
        p.before_ + static_cast<int64_t>(part * static_cast<double>(p.end_ - p.before_));
    if (at <= p.last_) return 0;
    p.last_ = at;
    return p.executor_.report(at, kTotal);
  }

  const Executor& executor_;
  const double all_;
  double weights_ = 0;
  int64_t before_ = 0, end_ = 0, last_ = 0;
};

}  // namespace fa3
