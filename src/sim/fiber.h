// SPDX-License-Identifier: BSD-3-Clause
// fiber.h — one stack of execution of a simulated thread: raw Boost.Context switches, announced to
// AddressSanitizer and ThreadSanitizer. Stacks come in chunks of one mapping per CTA and are kept
// for the next CTA.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <memory>

#include "device/types.h"

namespace fa3::sim {

// One suspended or running flow of control. The launcher's own stack is a Fiber without entry.
class Fiber {
 public:
  using Entry = void (*)(void* argument);

  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Prepares a fiber that runs entry(argument) on the stack [bottom, bottom + bytes).
  void start(char* bottom, size_t bytes, Entry entry, void* argument);
  // Suspends `this`, the running fiber, and resumes `next`. A finished fiber is never resumed.
  void switch_to(Fiber& next, bool finished = false);

 private:
  static void trampoline(boost::context::detail::transfer_t from);
  void arrived(boost::context::detail::transfer_t from);

  boost::context::detail::fcontext_t context_ = nullptr;
  Fiber* next_ = nullptr;  // the fiber that this one switched to; this stack may be gone by then
  Entry entry_ = nullptr;
  void* argument_ = nullptr;
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;  // AddressSanitizer's
  [[maybe_unused]] void* tsan_fiber_ = nullptr;  // ThreadSanitizer's
};

// `count` stacks with a guard page below each, in one mapping.
class StackChunk {
 public:
  explicit StackChunk(u32 count);
  ~StackChunk();
  StackChunk(const StackChunk&) = delete;
  StackChunk& operator=(const StackChunk&) = delete;

  u32 count() const { return count_; }
  char* bottom(u32 index) const;
  // The offset spreads the stack tops over cache sets.
  size_t bytes(u32 index) const;

 private:
  u32 count_;
  char* memory_ = nullptr;
};

}  // namespace fa3::sim
