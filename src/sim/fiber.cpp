// SPDX-License-Identifier: BSD-3-Clause
// fiber.cpp — switches and stacks.
#include "sim/fiber.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "core/status.h"

#ifdef __has_feature
#define FA3_SIM_HAS(feature) __has_feature(feature)
#else
#define FA3_SIM_HAS(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || FA3_SIM_HAS(address_sanitizer)
#define FA3_SIM_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define FA3_SIM_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || FA3_SIM_HAS(thread_sanitizer)
#define FA3_SIM_TSAN 1
#include <sanitizer/tsan_interface.h>
#else
#define FA3_SIM_TSAN 0
#endif

namespace fa3::sim {
namespace {

// High water of a forward kernel: 8 KB optimised, 15 KB with sanitizers; only touched pages count.
constexpr size_t kStackBytes = FA3_SIM_ASAN || FA3_SIM_TSAN ? 256 << 10 : 64 << 10;
constexpr size_t kGuardBytes = 4096;
constexpr size_t kSlotBytes = kStackBytes + kGuardBytes;

}  // namespace

void Fiber::start(char* bottom, size_t bytes, Entry entry, void* argument) {
  entry_ = entry;
  argument_ = argument;
  stack_bottom_ = bottom;
  stack_bytes_ = bytes;
  fake_stack_ = nullptr;
#if FA3_SIM_ASAN
  __asan_unpoison_memory_region(bottom, bytes);  // a run that failed leaves its frames poisoned
#endif
#if FA3_SIM_TSAN
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
  context_ = boost::context::detail::make_fcontext(bottom + bytes, bytes, &Fiber::trampoline);
}

Fiber::~Fiber() {
#if FA3_SIM_TSAN
  if (tsan_fiber_ != nullptr && entry_ != nullptr) __tsan_destroy_fiber(tsan_fiber_);
#endif
}

void Fiber::switch_to(Fiber& next, bool finished) {
  next_ = &next;
#if FA3_SIM_ASAN
  __sanitizer_start_switch_fiber(finished ? nullptr : &fake_stack_, next.stack_bottom_,
                                 next.stack_bytes_);
#else
  (void)finished;
#endif
#if FA3_SIM_TSAN
  if (tsan_fiber_ == nullptr) tsan_fiber_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(next.tsan_fiber_, 0);
#endif
  arrived(boost::context::detail::jump_fcontext(next.context_, this));
}

// Runs on the stack that was switched to; `from` tells who was left, and where it can go on.
void Fiber::arrived(boost::context::detail::transfer_t from) {
  Fiber* left = static_cast<Fiber*>(from.data);
  left->context_ = from.fctx;
#if FA3_SIM_ASAN
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &bottom, &bytes);
  if (left->entry_ == nullptr) {  // the launcher's stack: known only now
    left->stack_bottom_ = bottom;
    left->stack_bytes_ = bytes;
  }
#endif
}

void Fiber::trampoline(boost::context::detail::transfer_t from) {
  Fiber* self = static_cast<Fiber*>(from.data)->next_;
  self->arrived(from);
  self->entry_(self->argument_);  // does not return: its last act is a switch
}

StackChunk::StackChunk(u32 count) : count_(count) {
  void* memory = mmap(nullptr, count * kSlotBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(FA3_OUT_OF_MEMORY,
                fmt::format("simulator: no address space for {} stacks of {} bytes: {}; lower the "
                            "number of resident CTAs",
                            count, kSlotBytes, std::strerror(errno)));
  memory_ = static_cast<char*>(memory);
  for (u32 i = 0; i < count; i++)
    if (mprotect(memory_ + i * kSlotBytes, kGuardBytes, PROT_NONE) != 0) {
      munmap(memory_, count_ * kSlotBytes);
      throw Error(FA3_OUT_OF_MEMORY,
                  fmt::format("simulator: no guard page for stack {} of {}: {}; raise "
                              "vm.max_map_count or lower the number of resident CTAs",
                              i, count, std::strerror(errno)));
    }
}

StackChunk::~StackChunk() {
#if FA3_SIM_ASAN
  __asan_unpoison_memory_region(memory_, count_ * kSlotBytes);
#endif
  munmap(memory_, count_ * kSlotBytes);
}

char* StackChunk::bottom(u32 index) const { return memory_ + index * kSlotBytes + kGuardBytes; }

size_t StackChunk::bytes(u32 index) const { return kStackBytes - (index * 320) % 4096; }

}  // namespace fa3::sim
