// SPDX-License-Identifier: BSD-3-Clause
// smem.h — shared memory seen as one struct, and its 32-bit addresses. Sections are those of PTX
// ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

#if !FA3_GPU
namespace names {

// Registers one member under its name: arrays of structs or of arrays element by element.
template <class T>
void add_member(const twin::SmemNames& names, const char* name, T& member) {
  names.add(names.context, name, -1, &member, sizeof(T));
}
template <class T, u64 N>
void add_member(const twin::SmemNames& names, const char* name, T (&member)[N]) {
  if constexpr (__is_class(T) || __is_union(T)) {
    for (u64 i = 0; i < N; ++i) {
      names.add(names.context, name, static_cast<int>(i), &member[i], sizeof(T));
    }
  } else {
    names.add(names.context, name, -1, member, sizeof(member));
  }
}
template <class T, u64 M, u64 N>
void add_member(const twin::SmemNames& names, const char* name, T (&member)[N][M]) {
  for (u64 i = 0; i < N; ++i) {
    names.add(names.context, name, static_cast<int>(i), &member[i], sizeof(member[i]));
  }
}

// The visitor of FA3_NAMED: takes "q, k, k_full" apart as the members go by.
struct Visitor {
  const twin::SmemNames& names;

  template <class... Members>
  void operator()(const char* list, Members&... members) const {
    (next(list, members), ...);
  }

  template <class T>
  void next(const char*& list, T& member) const {
    char name[64];
    int length = 0;
    while (*list == ' ' || *list == ',') ++list;
    for (; *list != '\0' && *list != ',' && *list != ' '; ++list) {
      if (length < 63) name[length++] = *list;
    }
    name[length] = '\0';
    add_member(names, name, member);
  }
};

template <class T>
void describe(void* base, const twin::SmemNames& names) {
  T& smem = *static_cast<T*>(base);
  if constexpr (requires { smem.visit_members(Visitor{names}); }) {
    smem.visit_members(Visitor{names});
  } else {
    names.add(names.context, "smem", -1, base, sizeof(T));
  }
}

}  // namespace names
#endif

// The CTA's dynamic shared memory (5.1.7) as a T; the launch must ask for at least sizeof(T) bytes.
template <class T>
FA3_DEV T& smem_as(Where where = Where::here()) {
  static_assert(alignof(T) <= 1024, "smem_as: shared memory is aligned to 1024 bytes, not more");
#if FA3_GPU
  extern __shared__ __align__(1024) unsigned char fa3_smem[];
  return *reinterpret_cast<T*>(fa3_smem);
#else
  return *static_cast<T*>(twin::smem_base(sizeof(T), alignof(T), &names::describe<T>, where));
#endif
}

// cvta.to.shared.u64 (9.7.9.20): the 32-bit address that instructions on shared memory take.
FA3_DEV u32 smem_address(const void* pointer, Where where = Where::here()) {
#if FA3_GPU
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
#else
  return twin::smem_address(pointer, where);
#endif
}

// mapa.shared::cluster.u32 (9.7.9.23): the same place in the shared memory of CTA `rank`.
FA3_DEV u32 map_to_rank(u32 address, u32 rank, Where where = Where::here()) {
#if FA3_GPU
  u32 remote;  // arithmetic on addresses: no memory clobber
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
#else
  return twin::map_to_rank(address, rank, where);
#endif
}

}  // namespace fa3::ptx
