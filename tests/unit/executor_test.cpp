// SPDX-License-Identifier: BSD-3-Clause
// executor_test.cpp — every task once, own slots, failures, cancellation, waiting tasks, odd pools.
#include "core/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/status.h"

namespace fa3 {
namespace {

using Body = void (*)(void*, int64_t);

// Pools as hosts may have them.
void one_thread_each(void*, int64_t count, Body body, void* context) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < count; ++i) threads.emplace_back(body, context, i);
  for (std::thread& thread : threads) thread.join();
}
void one_after_the_other(void*, int64_t count, Body body, void* context) {
  for (int64_t i = count - 1; i >= 0; --i) body(context, i);
}
void no_one(void*, int64_t, Body, void*) {}
void too_often(void*, int64_t count, Body body, void* context) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < 3 * count; ++i) threads.emplace_back(body, context, 0);
  for (std::thread& thread : threads) thread.join();
}

class ExecutorOnPool : public testing::TestWithParam<fa3_parallel_for_fn> {};
INSTANTIATE_TEST_SUITE_P(Pools, ExecutorOnPool,
                         testing::Values(nullptr, one_thread_each, one_after_the_other, too_often));

TEST_P(ExecutorOnPool, EveryTaskOnce_SlotsNeverShared) {
  const Executor executor(4, GetParam());
  for (int64_t tasks : {0, 1, 3, 4, 1000}) {
    std::vector<std::atomic<int>> done(static_cast<size_t>(tasks));
    std::vector<std::atomic<int>> in_slot(4);
    std::atomic<bool> shared{false};
    executor.run(tasks, [&](const TaskContext& task) {
      if (in_slot.at(static_cast<size_t>(task.slot)).fetch_add(1) != 0) shared = true;
      done[static_cast<size_t>(task.index)].fetch_add(1);
      EXPECT_FALSE(task.stopped());
      in_slot[static_cast<size_t>(task.slot)].fetch_sub(1);
    });
    EXPECT_FALSE(shared);
    EXPECT_THAT(done,
                testing::Each(testing::Truly([](const std::atomic<int>& n) { return n == 1; })));
  }
}

TEST_P(ExecutorOnPool, TaskMayWaitForALowerOne) {
  const Executor executor(3, GetParam());
  std::atomic<int64_t> turn{0};
  executor.run(200, [&](const TaskContext& task) {
    while (turn.load() != task.index && !task.stopped()) std::this_thread::yield();
    turn.fetch_add(1);
  });
  EXPECT_EQ(turn.load(), 200);
}

TEST_P(ExecutorOnPool, FirstException_ReachesTheCaller_WaitersReturn) {
  const Executor executor(3, GetParam());
  std::atomic<int64_t> turn{0};
  try {
    executor.run(200, [&](const TaskContext& task) {
      while (turn.load() != task.index && !task.stopped()) std::this_thread::yield();
      if (task.stopped()) return;
      if (task.index == 20) throw std::runtime_error("task 20");
      turn.fetch_add(1);
    });
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "task 20");
  }
  EXPECT_EQ(turn.load(), 20);
  executor.run(1, [&](const TaskContext& task) {
    EXPECT_FALSE(task.stopped());
  });  // the next run is a fresh one
}

TEST(Executor, PoolThatLeavesOutWork_IsAnError) {
  const Executor executor(2, no_one);
  try {
    executor.run(5, [](const TaskContext&) {});
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_EQ(error.status().code, FA3_INVALID_ARGUMENT);
    EXPECT_THAT(error.status().message,
                testing::HasSubstr("parallel_for returned after 0 of 5 tasks"));
  }
}

struct Reports {
  std::vector<int64_t> done;
  int64_t total = 0;
  int64_t stop_at = INT64_MAX;

  static int record(void* self, int64_t done, int64_t total) {
    auto& reports = *static_cast<Reports*>(self);
    reports.done.push_back(done);
    reports.total = total;
    return done >= reports.stop_at;
  }
};

TEST(Executor, Progress_RisesToTheTotal) {
  Reports reports;
  const Executor executor(4, one_thread_each, nullptr, Reports::record, &reports);
  executor.run(500, [](const TaskContext&) {});
  EXPECT_EQ(reports.total, 500);
  EXPECT_EQ(reports.done.back(), 500);
  EXPECT_TRUE(std::is_sorted(reports.done.begin(), reports.done.end()));
}

TEST(Executor, Progress_OfManySmallTasks_IsThinnedOut) {
  Reports reports;
  const Executor executor(2, nullptr, nullptr, Reports::record, &reports);
  executor.run(100'000, [](const TaskContext&) {});
  EXPECT_LE(reports.done.size(), 1100u);
  EXPECT_EQ(reports.done.back(), 100'000);
}

TEST(Executor, Progress_OverSeveralRuns) {
  Reports reports;
  const Executor executor(1, nullptr, nullptr, Reports::record, &reports);
  executor.run(2, [](const TaskContext&) {}, {0, 5});
  executor.run(3, [](const TaskContext&) {}, {2, 5});
  EXPECT_EQ(reports.done, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(reports.total, 5);
}

TEST(Executor, Progress_MayCancel) {
  Reports reports;
  reports.stop_at = 10;
  const Executor executor(1, nullptr, nullptr, Reports::record, &reports);
  int ran = 0;
  try {
    executor.run(100, [&](const TaskContext&) { ++ran; });
    FAIL() << "not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.status().code, FA3_CANCELLED);
    EXPECT_THAT(error.status().message, testing::HasSubstr("by returning 1, after 10 of 100"));
  }
  EXPECT_EQ(ran, 10);
  EXPECT_EQ(reports.done.size(), 10u) << "not asked again";
}

TEST(Executor, ManyCallersAtOnce) {
  const Executor executor(2);
  std::atomic<int> done{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] { executor.run(50, [&](const TaskContext&) { done.fetch_add(1); }); });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done.load(), 400);
}

}  // namespace
}  // namespace fa3
