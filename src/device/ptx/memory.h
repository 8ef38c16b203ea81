// SPDX-License-Identifier: BSD-3-Clause
// memory.h — loads and stores of one thread: 1, 2, 4, 8 or 16 bytes through the generic proxy.
// Atomics are in atomic.h and
// reduce.h. Sections are those of PTX ISA 9.1.
#pragma once

#include "device/ptx/atomic.h"
#include "device/ptx/reduce.h"
#include "device/ptx/smem.h"
#include "device/ptx/twin.h"
#include "device/ptx/vec.h"
#include "device/types.h"

namespace fa3::ptx {

#if FA3_GPU
// The body of a load or store of any width: OP up to the type, C the constraint of ADDRESS.
#define FA3_LOAD(OP, C, ADDRESS)                                          \
  static_assert(kIsAccess<T>, "one access moves 1, 2, 4, 8 or 16 bytes"); \
  if constexpr (sizeof(T) == 1) {                                         \
    u32 x;                                                                \
    asm volatile(OP ".u8 %0, [%1];" : "=r"(x) : C(ADDRESS) : "memory");   \
    return bits_as<T>(u8(x));                                             \
  } else if constexpr (sizeof(T) == 2) {                                  \
    u16 x;                                                                \
    asm volatile(OP ".u16 %0, [%1];" : "=h"(x) : C(ADDRESS) : "memory");  \
    return bits_as<T>(x);                                                 \
  } else if constexpr (sizeof(T) == 4) {                                  \
    u32 x;                                                                \
    asm volatile(OP ".u32 %0, [%1];" : "=r"(x) : C(ADDRESS) : "memory");  \
    return bits_as<T>(x);                                                 \
  } else if constexpr (sizeof(T) == 8) {                                  \
    u64 x;                                                                \
    asm volatile(OP ".u64 %0, [%1];" : "=l"(x) : C(ADDRESS) : "memory");  \
    return bits_as<T>(x);                                                 \
  } else {                                                                \
    Vec<u32, 4> x;                                                        \
    asm volatile(OP ".v4.u32 {%0, %1, %2, %3}, [%4];"                     \
                 : "=r"(x.v[0]), "=r"(x.v[1]), "=r"(x.v[2]), "=r"(x.v[3]) \
                 : C(ADDRESS)                                             \
                 : "memory");                                             \
    return bits_as<T>(x);                                                 \
  }
#define FA3_STORE(OP, C, ADDRESS)                                                             \
  static_assert(kIsAccess<T>, "one access moves 1, 2, 4, 8 or 16 bytes");                     \
  if constexpr (sizeof(T) == 1) {                                                             \
    asm volatile(OP ".u8 [%0], %1;" ::C(ADDRESS), "r"(u32(bits_as<u8>(value))) : "memory");   \
  } else if constexpr (sizeof(T) == 2) {                                                      \
    asm volatile(OP ".u16 [%0], %1;" ::C(ADDRESS), "h"(bits_as<u16>(value)) : "memory");      \
  } else if constexpr (sizeof(T) == 4) {                                                      \
    asm volatile(OP ".u32 [%0], %1;" ::C(ADDRESS), "r"(bits_as<u32>(value)) : "memory");      \
  } else if constexpr (sizeof(T) == 8) {                                                      \
    asm volatile(OP ".u64 [%0], %1;" ::C(ADDRESS), "l"(bits_as<u64>(value)) : "memory");      \
  } else {                                                                                    \
    const auto x = bits_as<Vec<u32, 4>>(value);                                               \
    asm volatile(OP ".v4.u32 [%0], {%1, %2, %3, %4};" ::C(ADDRESS), "r"(x.v[0]), "r"(x.v[1]), \
                 "r"(x.v[2]), "r"(x.v[3])                                                     \
                 : "memory");                                                                 \
  }
#else
#define FA3_LOAD_TWIN(LOAD, ...)                                          \
  static_assert(kIsAccess<T>, "one access moves 1, 2, 4, 8 or 16 bytes"); \
  T value;                                                                \
  LOAD(&value, from, sizeof(T), __VA_ARGS__);                             \
  return value
#define FA3_STORE_TWIN(STORE, ...)                                        \
  static_assert(kIsAccess<T>, "one access moves 1, 2, 4, 8 or 16 bytes"); \
  STORE(to, &value, sizeof(T), __VA_ARGS__)
#endif

// ld.shared (9.7.9.8).
template <class T>
FA3_DEV T ld_shared(const T* from, Where where = Where::here()) {
#if FA3_GPU
  FA3_LOAD("ld.shared", "r", smem_address(from));
#else
  FA3_LOAD_TWIN(twin::shared_load, where);
#endif
}

// st.shared (9.7.9.11).
template <class T>
FA3_DEV void st_shared(T* to, T value, Where where = Where::here()) {
#if FA3_GPU
  FA3_STORE("st.shared", "r", smem_address(to));
#else
  FA3_STORE_TWIN(twin::shared_store, where);
#endif
}

// ld.shared::cluster (9.7.9.8): from an address of map_to_rank.
template <class T>
FA3_DEV T ld_shared_cluster(u32 from, Where where = Where::here()) {
#if FA3_GPU
  FA3_LOAD("ld.shared::cluster", "r", from);
#else
  FA3_LOAD_TWIN(twin::shared_load_cluster, where);
#endif
}

// st.shared::cluster (9.7.9.11): to an address of map_to_rank.
template <class T>
FA3_DEV void st_shared_cluster(u32 to, T value, Where where = Where::here()) {
#if FA3_GPU
  FA3_STORE("st.shared::cluster", "r", to);
#else
  FA3_STORE_TWIN(twin::shared_store_cluster, where);
#endif
}

// ld.global (9.7.9.8).
template <class T>
FA3_DEV T ld_global(const T* from, Where where = Where::here()) {
#if FA3_GPU
  FA3_LOAD("ld.global", "l", from);
#else
  FA3_LOAD_TWIN(twin::global_load, twin::Order::kWeak, twin::Scope::kCta, where);
#endif
}

// ld.global.nc (9.7.9.9): of memory that is not written while the kernel runs.
template <class T>
FA3_DEV T ld_global_nc(const T* from, Where where = Where::here()) {
#if FA3_GPU
  FA3_LOAD("ld.global.nc", "l", from);
#else
  FA3_LOAD_TWIN(twin::global_load, twin::Order::kNonCoherent, twin::Scope::kCta, where);
#endif
}

// @p ld.global.nc (9.7.9.9): where wanted; else 0, and nothing is read.
template <class T>
FA3_DEV T ld_global_nc_if(const T* from, bool wanted,
                          [[maybe_unused]] Where where = Where::here()) {
  static_assert(sizeof(T) <= 8, "one access moves 1, 2, 4 or 8 bytes");
#if FA3_GPU
#define FA3_LOAD_IF(REGISTER, ZERO, LOAD, C)                                                   \
  REGISTER x;                                                                                  \
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; " ZERO " %0, 0; @p " LOAD " %0, [%1]; }" \
               : C(x)                                                                          \
               : "l"(from), "r"(u32(wanted))                                                   \
               : "memory");
  if constexpr (sizeof(T) == 1) {
    FA3_LOAD_IF(u32, "mov.u32", "ld.global.nc.u8", "=r")
    return bits_as<T>(u8(x));
  } else if constexpr (sizeof(T) == 2) {
    FA3_LOAD_IF(u16, "mov.u16", "ld.global.nc.u16", "=h")
    return bits_as<T>(x);
  } else if constexpr (sizeof(T) == 4) {
    FA3_LOAD_IF(u32, "mov.u32", "ld.global.nc.u32", "=r")
    return bits_as<T>(x);
  } else {
    FA3_LOAD_IF(u64, "mov.u64", "ld.global.nc.u64", "=l")
    return bits_as<T>(x);
  }
#undef FA3_LOAD_IF
#else
  return wanted ? ld_global_nc(from, where) : T{};
#endif
}

// st.global (9.7.9.11).
template <class T>
FA3_DEV void st_global(T* to, T value, Where where = Where::here()) {
#if FA3_GPU
  FA3_STORE("st.global", "l", to);
#else
  FA3_STORE_TWIN(twin::global_store, twin::Order::kWeak, twin::Scope::kCta, where);
#endif
}

// ld.volatile.global (9.7.9.8): as relaxed at system scope.
template <class T>
FA3_DEV T ld_volatile(const T* from, Where where = Where::here()) {
#if FA3_GPU
  FA3_LOAD("ld.volatile.global", "l", from);
#else
  FA3_LOAD_TWIN(twin::global_load, twin::Order::kVolatile, twin::Scope::kSystem, where);
#endif
}

// ld.relaxed.gpu.global (9.7.9.8).
template <class T>
FA3_DEV T ld_relaxed_gpu(const T* from, Where where = Where::here()) {
#if FA3_GPU
  FA3_LOAD("ld.relaxed.gpu.global", "l", from);
#else
  FA3_LOAD_TWIN(twin::global_load, twin::Order::kRelaxed, twin::Scope::kGpu, where);
#endif
}

// st.relaxed.gpu.global (9.7.9.11).
template <class T>
FA3_DEV void st_relaxed_gpu(T* to, T value, Where where = Where::here()) {
#if FA3_GPU
  FA3_STORE("st.relaxed.gpu.global", "l", to);
#else
  FA3_STORE_TWIN(twin::global_store, twin::Order::kRelaxed, twin::Scope::kGpu, where);
#endif
}

// ld.acquire.gpu.global (9.7.9.8).
template <class T>
FA3_DEV T ld_acquire_gpu(const T* from, Where where = Where::here()) {
#if FA3_GPU
  FA3_LOAD("ld.acquire.gpu.global", "l", from);
#else
  FA3_LOAD_TWIN(twin::global_load, twin::Order::kAcquire, twin::Scope::kGpu, where);
#endif
}

// st.release.gpu.global (9.7.9.11).
template <class T>
FA3_DEV void st_release_gpu(T* to, T value, Where where = Where::here()) {
#if FA3_GPU
  FA3_STORE("st.release.gpu.global", "l", to);
#else
  FA3_STORE_TWIN(twin::global_store, twin::Order::kRelease, twin::Scope::kGpu, where);
#endif
}

#if FA3_GPU
#undef FA3_LOAD
#undef FA3_STORE
#else
#undef FA3_LOAD_TWIN
#undef FA3_STORE_TWIN
#endif

}  // namespace fa3::ptx
