// SPDX-License-Identifier: BSD-3-Clause
// threads_test.cpp — the parallel_for hook with a pool of std::threads, concurrent runs and
// cancellation.
//
// Built under TSan as well. Nothing of it is suppressed: the hook keeps oneTBB, which is not
// instrumented, out of it.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/kit/context.h"
#include "tests/kit/pool.h"
#include "tests/kit/run.h"

namespace fa3 {
namespace {

using verify::Config;

// Several tasks of every kind: blocks of heads, splits of a decode, chunks of keys that add to one
// dQ.
std::vector<Config> problems() {
  Config blocks;
  blocks.dtype = FA3_BF16;
  blocks.backward = true;
  blocks.batch = 2;
  blocks.heads_q = 4;
  blocks.heads_kv = 2;
  blocks.seqlen_q = blocks.seqlen_kv = 230;
  blocks.head_dim_qk = blocks.head_dim_v = 32;
  blocks.mask = FA3_MASK_CAUSAL;
  Config chunks = blocks;
  chunks.dtype = FA3_F32;
  chunks.batch = chunks.heads_q = chunks.heads_kv = 1;
  chunks.seqlen_kv = 1800;
  Config decode = chunks;
  decode.backward = false;
  decode.seqlen_q = 1;
  decode.seqlen_kv = 5000;
  Config ragged = blocks;
  ragged.dtype = FA3_F16;
  ragged.varlen_q = {3, 0, 150};
  ragged.varlen_kv = {700, 4, 150};
  return {blocks, chunks, decode, ragged};
}

fa3_context_options options_with(kit::Pool& pool, int threads) {
  fa3_context_options options = kit::default_options(threads);
  pool.use_in(&options);
  return options;
}

std::vector<kit::OutputBits> serial_bits() {
  kit::Pool none(0);
  const kit::Context context = kit::make_context(options_with(none, 1));
  std::vector<kit::OutputBits> bits;
  for (const Config& c : problems()) bits.push_back(kit::output_bits(c, context.get()));
  return bits;
}

// The pool may have fewer threads than the context's limit, or more.
TEST(CpuThreads, PoolsOfAnySize_SameBits) {
  const std::vector<kit::OutputBits> expected = serial_bits();
  const std::vector<Config> all = problems();
  for (const int workers : {0, 1, 3, 8}) {
    for (const int limit : {1, 2, 4, 16}) {
      kit::Pool pool(workers);
      const kit::Context context = kit::make_context(options_with(pool, limit));
      for (size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(kit::output_bits(all[i], context.get()) == expected[i])
            << workers << " workers, limit " << limit << ": " << verify::replay_command(all[i]);
      EXPECT_LE(pool.largest_count(), limit);
    }
  }
}

TEST(CpuThreads, FreshThreadPerIndex_SameBits) {
  const auto spawn = [](void*, int64_t count, void (*body)(void*, int64_t), void* context) {
    std::vector<std::thread> threads;
    for (int64_t i = count - 1; i >= 0; --i) threads.emplace_back(body, context, i);
    for (std::thread& thread : threads) thread.join();
  };
  fa3_context_options options = kit::default_options(4);
  options.parallel_for = spawn;
  const kit::Context context = kit::make_context(options);
  const std::vector<kit::OutputBits> expected = serial_bits();
  const std::vector<Config> all = problems();
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_TRUE(kit::output_bits(all[i], context.get()) == expected[i]);
}

// One plan, many threads at once, each with its own workspace and outputs.
TEST(CpuThreads, OnePlanOnManyThreads_RunsDoNotMeet) {
  kit::Pool pool(3);
  const kit::Context context = kit::make_context(options_with(pool, 3));
  const std::vector<kit::OutputBits> expected = serial_bits();
  const std::vector<Config> all = problems();
  for (size_t i = 0; i < all.size(); ++i) {
    const Config& c = all[i];
    const verify::Tensors planned = verify::make_tensors(c);
    const fa3_forward_args plan_args = verify::forward_args(c, planned);
    fa3_plan* raw = nullptr;
    ASSERT_EQ(fa3_plan_forward(context.get(), &plan_args, &raw), FA3_OK) << fa3_last_error();
    const kit::Plan plan(raw);
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; ++n)
      threads.emplace_back([&] {
        const verify::Tensors own = verify::make_tensors(c);
        const fa3_forward_args args = verify::forward_args(c, own);
        std::vector<std::byte> workspace(fa3_plan_workspace_bytes(plan.get()), std::byte{0xff});
        const fa3_status status =
            fa3_plan_run(plan.get(), &args, workspace.data(), workspace.size(), nullptr);
        if (status != FA3_OK || kit::bytes_of(args.o) != expected[i].at("o")) ++wrong;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << verify::replay_command(c);
  }
}

// One context, many threads, calls that share its kept workspace.
TEST(CpuThreads, OneContextOnManyThreads_CallsDoNotMeet) {
  kit::Pool pool(2);
  const kit::Context context = kit::make_context(options_with(pool, 2));
  const std::vector<kit::OutputBits> expected = serial_bits();
  const std::vector<Config> all = problems();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n)
    threads.emplace_back([&, n] {
      for (size_t k = 0; k < all.size(); ++k) {
        const size_t i = (k + n) % all.size();
        const verify::Tensors t = verify::make_tensors(all[i]);
        const fa3_forward_args forward = verify::forward_args(all[i], t);
        bool right = fa3_forward(context.get(), &forward, nullptr) == FA3_OK &&
                     kit::bytes_of(forward.o) == expected[i].at("o");
        if (all[i].backward) {
          const fa3_backward_args backward = verify::backward_args(all[i], t);
          right = right && fa3_backward(context.get(), &backward, nullptr) == FA3_OK &&
                  kit::bytes_of(backward.dq) == expected[i].at("dq") &&
                  kit::bytes_of(backward.dk) == expected[i].at("dk");
        }
        if (!right) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// ---- Progress and cancellation ---------------------------------------------------------------

// Counts reports; cancels at the one of number `stop`. Calls must not overlap, so ordinary members
// are enough (TSan checks it).
struct Watch {
  int64_t stop = -1;
  int64_t reports = 0, last_done = 0, total = 0;
  bool orderly = true;

  static int report(void* user, int64_t done, int64_t total) {
    auto* watch = static_cast<Watch*>(user);
    watch->orderly = watch->orderly && done >= watch->last_done && done <= total &&
                     (watch->total == 0 || watch->total == total);
    watch->last_done = done;
    watch->total = total;
    return watch->reports++ == watch->stop;
  }
  void use_in(fa3_context_options* options) {
    options->progress = report;
    options->progress_user = this;
  }
};

TEST(CpuThreads, Progress_RisesToItsTotal) {
  for (const Config& c : problems()) {
    kit::Pool pool(3);
    fa3_context_options options = options_with(pool, 4);
    Watch watch;
    watch.use_in(&options);
    const kit::Context context = kit::make_context(options);
    const verify::Tensors t = verify::make_tensors(c);
    const fa3_forward_args forward = verify::forward_args(c, t);
    ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
    EXPECT_TRUE(watch.orderly);
    EXPECT_GT(watch.reports, 0);
    EXPECT_EQ(watch.last_done, watch.total);
    if (!c.backward) continue;
    watch = Watch();
    const fa3_backward_args backward = verify::backward_args(c, t);
    ASSERT_EQ(fa3_backward(context.get(), &backward, nullptr), FA3_OK) << fa3_last_error();
    EXPECT_TRUE(watch.orderly);
    EXPECT_EQ(watch.last_done, watch.total);
  }
}

// Quantised, decoded, attended: one total for all.
TEST(CpuThreads, Progress_OfARecipe_HasOneTotal) {
  Config c;
  c.dtype = FA3_BF16;
  c.heads_q = 2;
  c.seqlen_q = c.seqlen_kv = 300;
  const verify::Tensors t = verify::make_tensors(c);
  for (const fa3_precision precision : {FA3_PRECISION_FP8, FA3_PRECISION_EIGHT_BIT_ACCURATE}) {
    for (const fa3_backend backend : {FA3_BACKEND_CPU, FA3_BACKEND_REFERENCE}) {
      kit::Pool pool(3);
      fa3_context_options options = options_with(pool, 4);
      options.backend = backend;
      Watch watch;
      watch.use_in(&options);
      const kit::Context context = kit::make_context(options);
      fa3_forward_args forward = verify::forward_args(c, t);
      forward.precision = precision;
      ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
      EXPECT_TRUE(watch.orderly) << precision;
      EXPECT_GT(watch.reports, 4);
      EXPECT_EQ(watch.last_done, watch.total);
    }
  }
}

TEST(CpuThreads, CancelledAtAnyReport_StopsAndCanRunAgain) {
  for (const Config& c : problems()) {
    for (const int workers : {0, 3}) {
      kit::Pool pool(workers);
      fa3_context_options options = options_with(pool, 4);
      Watch watch;
      watch.use_in(&options);
      const kit::Context context = kit::make_context(options);
      const verify::Tensors t = verify::make_tensors(c);
      const fa3_forward_args forward = verify::forward_args(c, t);
      for (const int64_t stop : {0, 1, 5}) {
        watch = Watch();
        watch.stop = stop;
        const fa3_status status = fa3_forward(context.get(), &forward, nullptr);
        // The run may have had fewer reports; its last one may come too late to cancel anything.
        if (watch.reports > stop && watch.last_done < watch.total) {
          EXPECT_EQ(status, FA3_CANCELLED);
        }
      }
      watch = Watch();
      ASSERT_EQ(fa3_forward(context.get(), &forward, nullptr), FA3_OK) << fa3_last_error();
      if (!c.backward) continue;
      const fa3_backward_args backward = verify::backward_args(c, t);
      for (const int64_t stop : {0, 1, 5}) {
        watch = Watch();
        watch.stop = stop;
        const fa3_status status = fa3_backward(context.get(), &backward, nullptr);
        if (watch.reports > stop && watch.last_done < watch.total) {
          EXPECT_EQ(status, FA3_CANCELLED);
        }
      }
      watch = Watch();
      ASSERT_EQ(fa3_backward(context.get(), &backward, nullptr), FA3_OK) << fa3_last_error();
      for (const auto& r : verify::compare_backward(backward))
        EXPECT_TRUE(r.ok) << verify::to_text(r);
    }
  }
}

}  // namespace
}  // namespace fa3
