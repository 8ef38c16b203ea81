// SPDX-License-Identifier: BSD-3-Clause
// scheduler.cpp — who runs next and when asynchronous work takes effect, as the policy of the seed
// says.
#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "sim/numbers.h"
#include "sim/worker.h"

namespace fa3::sim {

Policy Policy::draw(Random& random, const Options& options) {
  if (options.timed) return {.pick = Pick::kClock, .completion = Completion::kEarly};
  Policy policy;
  switch (random.below(6)) {
    case 0:
    case 1:
      policy.pick = Pick::kRandom;
      break;
    case 2:
      policy = {.pick = Pick::kSticky, .leave_in = 0};
      break;
    case 3:
      policy = {.pick = Pick::kSticky, .leave_in = 16};
      break;
    default:
      policy.pick = Pick::kPriority;
  }
  constexpr u32 kYields[] = {0, 64, 8, 2, 2};
  policy.yield_in = kYields[random.below(5)];
  constexpr Completion kModes[] = {Completion::kEarly, Completion::kLate, Completion::kRandom};
  policy.completion = kModes[random.below(3)];
  policy.delay = 16u << random.below(7);
  if (options.completion != Completion::kDrawn) policy.completion = options.completion;
  return policy;
}

void Worker::yield(Thread& thread) { switch_away(thread, false); }

void Worker::block(Thread& thread, Waiting waiting) {
  thread.waiting = waiting;
  const u64 since = step;
  sleep(thread);
  switch_away(thread, false);
  if (grid.device.options.trace != nullptr) log_wait(thread, since);
  thread.waiting = {};
}

void Worker::log_wait(const Thread& thread, u64 since) {
  if (thread.waiting.on == Waiting::On::kCollective) return;
  const Cta& cta = *thread.cta;
  std::string what = thread.op;
  if (thread.waiting.on == Waiting::On::kMbarrier) what = "wait " + cta.name(thread.waiting.id);
  if (thread.waiting.on == Waiting::On::kNamedBarrier)
    what = fmt::format("wait named barrier {}", thread.waiting.id);
  grid.device.options.trace->add_of_lane(
      {std::move(what), since, step, cta.number(), thread.warp->index, text(thread.where)});
}

void Worker::wake(Thread& thread) {
  const u32 slot = thread.warp->slot;
  runnable_[slot] |= 1u << thread.lane;
  runnable_slots_[slot / 64] |= 1ull << (slot % 64);
  thread.time = std::max(thread.time, step);
}

void Worker::sleep(Thread& thread) {
  const u32 slot = thread.warp->slot;
  runnable_[slot] &= ~(1u << thread.lane);
  if (runnable_[slot] == 0) runnable_slots_[slot / 64] &= ~(1ull << (slot % 64));
}

void Worker::wake_all(std::vector<Thread*>& threads) {
  for (Thread* thread : threads) wake(*thread);
  threads.clear();
}

void Worker::later(Cluster& cluster, std::function<void()> event, u64 clocks) {
  u64 due = timed() ? step + clocks : step + 1 + random.below(4);
  if (policy.completion == Completion::kLate) due = ~0ull;
  if (policy.completion == Completion::kRandom) due = step + 1 + random.below(2 * policy.delay);
  events_.push_back({due, &cluster, std::move(event)});
  next_due_ = std::min(next_due_, due);
}

void Worker::fire(size_t index) {
  const std::function<void()> run = std::move(events_[index].run);
  events_[index] = std::move(events_.back());
  events_.pop_back();
  stats.events++;
  progress_++;
  idle_ = 0;
  run();
}

void Worker::fire_due() {
  for (size_t i = 0; i < events_.size();)
    if (events_[i].due <= step) {
      fire(i);
      i = 0;
    } else {
      i++;
    }
  next_due_ = ~0ull;
  for (const Event& event : events_) next_due_ = std::min(next_due_, event.due);
}

Thread* Worker::pick() {
  if (timed()) return pick_by_clock();
  for (;;) {
    stats.steps++;
    if (++step >= next_due_) fire_due();
    // One warp in the bit set, by the policy.
    const u32 words = static_cast<u32>(runnable_slots_.size());
    const Policy::Pick how = fair_ ? Policy::Pick::kRandom : policy.pick;
    fair_ = false;
    if (how == Policy::Pick::kSticky && runnable_[last_slot_] != 0 &&
        !random.one_in(policy.leave_in))
      return pick_in(last_slot_);
    if (how == Policy::Pick::kPriority) {
      if (step % 256 == 0) {
        const u32 slot = random.below(static_cast<u32>(warps_.size()));
        if (warps_[slot] != nullptr) warps_[slot]->priority = static_cast<u32>(random.next());
      }
      Warp* best = nullptr;
      for (u32 w = 0; w < words; w++)
        for (u64 bits = runnable_slots_[w]; bits != 0; bits &= bits - 1) {
          Warp* warp = warps_[w * 64 + static_cast<u32>(std::countr_zero(bits))];
          if (best == nullptr || warp->priority > best->priority) best = warp;
        }
      if (best != nullptr) return pick_in(best->slot);
    } else {
      const u32 start = random.below(words);
      for (u32 i = 0; i < words; i++) {
        const u32 w = (start + i) % words;
        u64 bits = runnable_slots_[w];
        if (bits == 0) continue;
        for (u32 skip = random.below(static_cast<u32>(std::popcount(bits))); skip > 0; skip--)
          bits &= bits - 1;
        return pick_in(w * 64 + static_cast<u32>(std::countr_zero(bits)));
      }
    }
    if (!events_.empty()) {
      fire(random.below(static_cast<u32>(events_.size())));
      continue;
    }
    if (!wake_pollers()) deadlock(false);
  }
}

// The first thread that goes on, after all events before it.
Thread* Worker::pick_by_clock() {
  for (;;) {
    stats.steps++;
    Thread* first = nullptr;
    for (u32 w = 0; w < runnable_slots_.size(); w++)
      for (u64 bits = runnable_slots_[w]; bits != 0; bits &= bits - 1) {
        const u32 slot = w * 64 + static_cast<u32>(std::countr_zero(bits));
        for (u32 lanes = runnable_[slot]; lanes != 0; lanes &= lanes - 1) {
          Thread& thread = warps_[slot]->threads[std::countr_zero(lanes)];
          if (first == nullptr || thread.time < first->time) first = &thread;
        }
      }
    if (first != nullptr && first->time < next_due_) {
      step = first->time;
      return first;
    }
    if (!events_.empty()) {
      step = next_due_;
      fire_due();
    } else if (!wake_pollers()) {
      deadlock(false);
    }
  }
}

// What the thread has computed since its last primitive, and the primitive. Others go first whose
// time is earlier.
void Worker::spend(Thread& thread) {
  Warp& warp = *thread.warp;
  u32 exps = take_exponentials();
  const u32 all = exps;
  const u64 begin = thread.time;
  while (exps > 0) {
    const u32 batch = std::min(exps, kExpsAtOnce);
    exps -= batch;
    if (thread.exp_batches++ == warp.exp_batches) {  // the first of its lanes
      warp.exp_batches++;
      Unit& unit = thread.cta->sm.exponentials[warp.index % 4];
      unit.take(thread.time, batch * kExpClocks);
      warp.exps_until = unit.until;
    }
    thread.time = std::max(thread.time, warp.exps_until);
    yield(thread);
  }
  if (Trace* trace = grid.device.options.trace; trace != nullptr && all > 0)
    trace->add_of_lane({fmt::format("{} exponentials", all), begin, thread.time,
                        thread.cta->number(), warp.index, text(thread.where)});
  thread.time += kPrimitiveClocks;
  yield(thread);
}

Thread* Worker::pick_in(u32 slot) {
  last_slot_ = slot;
  u32 lanes = runnable_[slot];
  if (policy.pick == Policy::Pick::kRandom)
    for (u32 skip = random.below(static_cast<u32>(std::popcount(lanes))); skip > 0; skip--)
      lanes &= lanes - 1;
  return &warps_[slot]->threads[std::countr_zero(lanes)];
}

// Threads suspended in a try_wait may go on with "false"; twice without any progress in between is
// a deadlock.
bool Worker::wake_pollers() {
  if (stuck_progress_ == progress_) return false;
  stuck_progress_ = progress_;
  bool any = false;
  for (Warp* warp : warps_)
    for (u32 lane = 0; warp != nullptr && lane < warp->lanes; lane++) {
      Thread& thread = warp->threads[lane];
      if (thread.waiting.on != Waiting::On::kMbarrier || !thread.wake_spurious) continue;
      wake(thread);
      any = true;
    }
  return any;
}

}  // namespace fa3::sim
