// SPDX-License-Identifier: BSD-3-Clause
// memory.cpp — loads, stores, atomics and fences of the generic proxy; shared memory's layout.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/copy.h"
#include "sim/numbers.h"

namespace fa3::sim {
namespace {

using twin::AtomicOp;
using twin::Order;
using twin::ScalarType;
using twin::Scope;

Accessor accessor(Thread& thread, const char* op, Where where) {
  return {thread.clock, thread.epoch(), intern(op, where), false};
}

GlobalAccessor global_accessor(Thread& thread, const char* op, Where where, bool atomic) {
  return {&thread.cta->cluster, thread.clock, thread.epoch(), intern(op, where), false, atomic};
}

void check_alignment(Thread& thread, const char* op, const void* pointer, u32 bytes, Where where) {
  if (std::has_single_bit(bytes) && bytes <= 16 && reinterpret_cast<u64>(pointer) % bytes == 0)
    return;
  const Cta& cta = *thread.cta;
  const std::ptrdiff_t offset = static_cast<const char*>(pointer) - cta.smem.get();
  std::string name = offset >= 0 && offset < static_cast<std::ptrdiff_t>(cta.smem_bytes)
                         ? cta.name(static_cast<u32>(offset))
                         : cta.cluster.worker->grid.device.memory.name_of(pointer);
  std::string message = fmt::format("{} of {} bytes at {}, {} past a multiple of 16", op, bytes,
                                    name, reinterpret_cast<u64>(pointer) % 16);
  fail(cta, Rule::kAlignment, std::move(name), std::move(message),
       "an access of 1, 2, 4, 8 or 16 bytes at a multiple of its size",
       {access_of(thread, op, where)});
}

// Offset of a host pointer in the CTA's shared memory.
u32 offset_of(Thread& thread, const void* pointer, u32 bytes, const char* op, Where where) {
  const Cta& cta = *thread.cta;
  const char* begin = cta.smem.get();
  const char* at = static_cast<const char*>(pointer);
  if (at < begin || at + bytes > begin + cta.smem_bytes)
    fail(cta, Rule::kOutOfBounds, "",
         fmt::format("{} of {} bytes outside of the CTA's {} bytes of shared memory", op, bytes,
                     cta.smem_bytes),
         "a pointer into the struct of smem_as<T>()", {access_of(thread, op, where)});
  return static_cast<u32>(at - begin);
}

void check_talks(Thread& thread, const char* op, Scope scope, Where where) {
  if (scope != Scope::kCta && scope != Scope::kCluster) check_atomics_allowed(thread, op, where);
}

bool acquires(Order order) { return order == Order::kAcquire || order == Order::kAcqRel; }
bool releases(Order order) { return order == Order::kRelease || order == Order::kAcqRel; }

void learn(Thread& thread, const Foreign& news) {
  if (news.empty()) return;
  Cluster& cluster = thread.cta->cluster;
  const Foreign before = known_to(cluster, thread.clock);
  bool fresh = false;
  for (const auto& [index, clock] : news) {
    if (index == cluster.index) {
      join(thread.clock, clock.data(), cluster.width);
      continue;
    }
    const auto known = before.find(index);
    for (size_t i = 0; i < clock.size() && !fresh; i++)
      fresh = known == before.end() || clock[i] > known->second[i];
  }
  if (fresh) cluster.news.push_back({thread.epoch(), news});
  thread.version++;
}

// The synchronisation of a strong access at an address, before (acquire) and after (release) it.
void acquire_side(Thread& thread, const void* address, Order order) {
  const Cluster& cluster = thread.cta->cluster;
  Foreign news = cluster.worker->grid.device.memory.acquire(cluster, address);
  if (acquires(order))
    learn(thread, news);
  else
    for (auto& [index, clock] : news) thread.acquire_ready[index] = std::move(clock);
}

void release_side(Thread& thread, const void* address, Order order) {
  GlobalMemory& memory = thread.cta->cluster.worker->grid.device.memory;
  if (releases(order)) {
    memory.release(thread, known_to(thread.cta->cluster, thread.clock), thread.clock, address);
    thread.tick()++;
  } else if (thread.has_release) {  // a fence came before: it releases through this access
    const auto own = thread.release_ready.find(thread.cta->cluster.index);
    memory.release(thread, thread.release_ready, own->second.data(), address);
  }
}

u64 load_bits(const void* from, u32 bytes) {
  u64 bits = 0;
  std::memcpy(&bits, from, bytes);
  return bits;
}

u64 combine(u64 old, u64 operand, u64 compare, AtomicOp op, ScalarType type) {
  const bool is_signed = type == ScalarType::kI32;
  const bool less = is_signed ? static_cast<i32>(operand) < static_cast<i32>(old) : operand < old;
  switch (op) {
    case AtomicOp::kAdd:
      return add_bits(old, operand, type);
    case AtomicOp::kMin:
      return less ? operand : old;
    case AtomicOp::kMax:
      return less ? old : operand;
    case AtomicOp::kExchange:
      return operand;
    case AtomicOp::kCompareSwap:
      return old == compare ? operand : old;
    case AtomicOp::kAnd:
      return old & operand;
    case AtomicOp::kOr:
      return old | operand;
    case AtomicOp::kInc:
      return old >= operand ? 0 : old + 1;
  }
  return old;
}

}  // namespace
}  // namespace fa3::sim

namespace fa3::twin {
using namespace sim;

const Ids& ids() { return self().ids; }

void* smem_base(u64 bytes, u64 alignment, void (*describe)(void*, const SmemNames&), Where where) {
  Thread& thread = self();
  Cta& cta = *thread.cta;
  char* base = cta.smem.get();
  if (cta.described) return base;
  if (bytes > cta.smem_bytes || alignment > 1024)
    fail(cta, Rule::kLaunch, "",
         fmt::format("the kernel's shared memory has {} bytes aligned to {}, the launch asked for "
                     "{} bytes, aligned to 1024",
                     bytes, alignment, cta.smem_bytes),
         "LaunchShape::smem_bytes = sizeof of the struct", {access_of(thread, "smem_as", where)});
  cta.described = true;
  struct Context {
    Cta* cta;
    char* base;
  } context{&cta, base};
  const SmemNames names{
      &context, [](void* to, const char* name, int index, const void* begin, u64 size) {
        auto& into = *static_cast<Context*>(to);
        const u32 offset = static_cast<u32>(static_cast<const char*>(begin) - into.base);
        into.cta->shadow.declare(offset, static_cast<u32>(size));
        into.cta->members.push_back({offset, static_cast<u32>(size),
                                     index < 0 ? name : fmt::format("{}[{}]", name, index)});
      }};
  if (describe != nullptr)
    describe(base, names);
  else
    cta.shadow.declare(0, static_cast<u32>(bytes));
  return base;
}

u32 smem_address(const void* pointer, Where where) {
  return kSmemWindow + offset_of(self(), pointer, 0, "smem_address", where);
}

void shared_load(void* to, const void* from, u32 bytes, Where where) {
  Thread& thread = enter("ld_shared", where);
  check_alignment(thread, "ld_shared", from, bytes, where);
  const u32 offset = offset_of(thread, from, bytes, "ld_shared", where);
  thread.cta->shadow.read(accessor(thread, "ld_shared", where), offset, bytes);
  std::memcpy(to, from, bytes);
}

void shared_store(void* to, const void* from, u32 bytes, Where where) {
  Thread& thread = enter("st_shared", where);
  check_alignment(thread, "st_shared", to, bytes, where);
  const u32 offset = offset_of(thread, to, bytes, "st_shared", where);
  thread.cta->shadow.write(accessor(thread, "st_shared", where), offset, bytes);
  std::memcpy(to, from, bytes);
}

namespace {

// A window address of the cluster as memory of its CTA.
char* cluster_memory(Thread& thread, u32 address, u32 bytes, const char* op, Where where, Cta*& cta,
                     u32& offset) {
  cta = &cta_of(thread, address, op, where);
  offset = address - kSmemWindow;
  if (address < kSmemWindow || offset + bytes > cta->smem_bytes)
    fail(*cta, Rule::kOutOfBounds, "",
         fmt::format("{} of {} bytes outside of the CTA's {} bytes of shared memory", op, bytes,
                     cta->smem_bytes),
         "an address of map_to_rank()", {access_of(thread, op, where)});
  char* memory = cta->smem.get() + offset;
  check_alignment(thread, op, memory, bytes, where);
  return memory;
}

}  // namespace

void shared_load_cluster(void* to, u32 from, u32 bytes, Where where) {
  Thread& thread = enter("ld_shared_cluster", where);
  Cta* cta = nullptr;
  u32 offset = 0;
  const char* memory = cluster_memory(thread, from, bytes, "ld_shared_cluster", where, cta, offset);
  cta->shadow.read(accessor(thread, "ld_shared_cluster", where), offset, bytes);
  std::memcpy(to, memory, bytes);
}

void shared_store_cluster(u32 to, const void* from, u32 bytes, Where where) {
  Thread& thread = enter("st_shared_cluster", where);
  Cta* cta = nullptr;
  u32 offset = 0;
  char* memory = cluster_memory(thread, to, bytes, "st_shared_cluster", where, cta, offset);
  cta->shadow.write(accessor(thread, "st_shared_cluster", where), offset, bytes);
  std::memcpy(memory, from, bytes);
}

void global_load(void* to, const void* from, u32 bytes, Order order, Scope scope, Where where) {
  const bool strong = order != Order::kWeak && order != Order::kNonCoherent;
  const char* op = order == Order::kAcquire ? "ld_acquire" : "ld_global";
  Thread& thread = enter(op, where, strong ? Yields::kPolling : Yields::kSometimes);
  check_alignment(thread, op, from, bytes, where);
  if (strong) check_talks(thread, op, scope, where);
  GlobalMemory& memory = thread.cta->cluster.worker->grid.device.memory;
  if (strong) acquire_side(thread, from, order);
  memory.read(global_accessor(thread, op, where, strong), from, bytes);
  std::memcpy(to, from, bytes);
}

void global_store(void* to, const void* from, u32 bytes, Order order, Scope scope, Where where) {
  const bool strong = order != Order::kWeak;
  const char* op = order == Order::kRelease ? "st_release" : "st_global";
  Thread& thread = enter(op, where);
  check_alignment(thread, op, to, bytes, where);
  if (strong) check_talks(thread, op, scope, where);
  GlobalMemory& memory = thread.cta->cluster.worker->grid.device.memory;
  memory.write(global_accessor(thread, op, where, strong), to, bytes);
  std::memcpy(to, from, bytes);
  if (strong) release_side(thread, to, order);
}

u64 global_atomic(void* to, u64 operand, u64 compare, AtomicOp op, ScalarType type, Order order,
                  Scope scope, Where where) {
  const u32 bytes = bytes_of(type);
  Thread& thread = enter("atom", where);
  check_alignment(thread, "atom", to, bytes, where);
  check_talks(thread, "atom", scope, where);
  GlobalMemory& memory = thread.cta->cluster.worker->grid.device.memory;
  const GlobalAccessor by = global_accessor(thread, "atom", where, true);
  memory.find(by, to, bytes, true);
  acquire_side(thread, to, order);
  memory.write(by, to, bytes);
  const u64 old = load_bits(to, bytes);
  const u64 now = combine(old, operand, compare, op, type);
  std::memcpy(to, &now, bytes);
  release_side(thread, to, order);
  return old;
}

u64 shared_atomic(void* to, u64 operand, u64 compare, AtomicOp op, ScalarType type, Where where) {
  const u32 bytes = bytes_of(type);
  Thread& thread = enter("atom_shared", where);
  check_alignment(thread, "atom_shared", to, bytes, where);
  const u32 offset = offset_of(thread, to, bytes, "atom_shared", where);
  // Atomics of a CTA order each other: each acquires from and releases to the place.
  Cta& cta = *thread.cta;
  auto& place = cta.atomics[offset];
  place.resize(cta.cluster.width);
  join(thread.clock, place.data(), cta.cluster.width);
  thread.version++;
  const Accessor by = accessor(thread, "atom_shared", where);
  cta.shadow.read(by, offset, bytes);
  cta.shadow.write(by, offset, bytes);
  Tick& known = place[thread.agent];
  known = std::max(known, thread.tick());
  const u64 old = load_bits(to, bytes);
  const u64 now = combine(old, operand, compare, op, type);
  std::memcpy(to, &now, bytes);
  return old;
}

void global_reduce_add_f32(float* to, const float* values, u32 count, Where where) {
  Thread& thread = enter("red_add", where);
  check_alignment(thread, "red_add", to, count * 4, where);
  check_talks(thread, "red_add", Scope::kGpu, where);
  GlobalMemory& memory = thread.cta->cluster.worker->grid.device.memory;
  memory.write(global_accessor(thread, "red_add", where, true), to, count * 4);
  for (u32 i = 0; i < count; i++)
    to[i] = std::bit_cast<float>(static_cast<u32>(
        add_bits(std::bit_cast<u32>(to[i]), std::bit_cast<u32>(values[i]), ScalarType::kF32)));
}

void fence(Order, Scope scope, Where where) {
  if (omitted("fence", where)) return;
  Thread& thread = enter("fence", where);
  if (scope == Scope::kCta) return;  // nothing crosses clusters
  learn(thread, thread.acquire_ready);
  thread.acquire_ready.clear();
  const Cluster& cluster = thread.cta->cluster;
  thread.release_ready = known_to(cluster, thread.clock);
  thread.release_ready[cluster.index] =
      std::vector<Tick>(thread.clock, thread.clock + cluster.width);
  thread.has_release = true;
  thread.tick()++;
}

void fence_proxy_async(ProxySpace space, Where where) {
  if (omitted("fence_proxy_async", where)) return;
  Thread& thread = enter("fence_proxy_async", where);
  const Cluster& cluster = thread.cta->cluster;
  if (space != ProxySpace::kGlobal) {
    thread.shared_fences.push_back(thread.tick());
    if (thread.cta->copies_by_threads) {
      auto& views = thread.fence_views;
      if (views.size() == Thread::kFenceViews) views.erase(views.begin());
      views.emplace_back(thread.clock, thread.clock + cluster.width);
    }
  }
  if (space != ProxySpace::kShared)
    cluster.worker->grid.device.memory.fence(cluster, thread.epoch());
  thread.tick()++;
}

void pdl_wait(Where where) {
  Thread& thread = enter("pdl_wait", where);
  thread.cta->cluster.pdl_waits.push_back(thread.epoch());
}
void pdl_launch(Where where) { enter("pdl_launch", where); }
void nanosleep(u32, Where where) { enter("nanosleep", where, Yields::kPolling); }
u64 clock(Where where) { return enter("clock", where, Yields::kPolling).tick()++; }

void trap(const char* message, Where where) {
  Thread& thread = enter("trap", where);
  fail(*thread.cta, Rule::kTrap, "", fmt::format("the kernel stopped itself: {}", message),
       "what the kernel checks there", {access_of(thread, "trap", where)});
}

}  // namespace fa3::twin
