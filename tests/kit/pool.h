// SPDX-License-Identifier: BSD-3-Clause
// pool.h — a pool of std::threads for the parallel_for hook: everything in it is instrumented under
// TSan.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "fa3/fa3.h"

namespace fa3::kit {

// Runs the bodies of any number of concurrent calls on `threads` workers; 0: on the calling thread
// alone.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // fa3_parallel_for_fn; user is a Pool.
  static void parallel_for(void* user, int64_t count, void (*body)(void*, int64_t),
                           void* body_context) {
    static_cast<Pool*>(user)->run(count, body, body_context);
  }
  void use_in(fa3_context_options* options) {
    options->parallel_for = parallel_for;
    options->parallel_for_user = this;
  }
  int64_t largest_count() const { return largest_count_; }  // that a call asked for

 private:
  // One call. Workers and the caller take indices until none is left.
  struct Call {
    int64_t count;
    void (*body)(void*, int64_t);
    void* context;
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> done{0};
  };

  void run(int64_t count, void (*body)(void*, int64_t), void* context) {
    for (int64_t seen = largest_count_; seen < count;)
      if (largest_count_.compare_exchange_weak(seen, count)) break;
    Call call{count, body, context};
    if (workers_.empty()) return take(call);
    std::unique_lock lock(mutex_);
    calls_.push_back(&call);
    wake_.notify_all();
    lock.unlock();
    take(call);
    lock.lock();
    finished_.wait(lock, [&] { return call.done == call.count && users_of(&call) == 0; });
    std::erase(calls_, &call);
  }

  static void take(Call& call) {
    for (int64_t i; (i = call.next++) < call.count;) {
      call.body(call.context, i);
      ++call.done;
    }
  }

  int64_t users_of(const Call* call) const {
    int64_t users = 0;
    for (const Call* busy : busy_) users += busy == call;
    return users;
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      Call* call = nullptr;
      wake_.wait(lock, [&] {
        for (Call* c : calls_)
          if (c->next < c->count) call = c;
        return closed_ || call != nullptr;
      });
      if (call == nullptr) return;
      busy_.push_back(call);
      lock.unlock();
      take(*call);
      lock.lock();
      busy_.erase(std::find(busy_.begin(), busy_.end(), call));
      finished_.notify_all();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::vector<Call*> calls_, busy_;
  bool closed_ = false;
  std::atomic<int64_t> largest_count_{0};
};

}  // namespace fa3::kit
