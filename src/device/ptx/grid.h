// SPDX-License-Identifier: BSD-3-Clause
// grid.h — what concerns a grid as a whole: the grid before it, waiting, giving up. Sections are
// those of PTX ISA 9.1.
#pragma once

#include "device/ptx/twin.h"
#include "device/types.h"

namespace fa3::ptx {

// griddepcontrol.wait (9.7.13.13): until the grids that this one depends on are complete and their
// writes visible.
FA3_DEV void pdl_wait(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("griddepcontrol.wait;" ::: "memory");
#else
  twin::pdl_wait(where);
#endif
}

// griddepcontrol.launch_dependents (9.7.13.13): the next grid may start; says nothing about memory.
FA3_DEV void pdl_launch(Where where = Where::here()) {
#if FA3_GPU
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#else
  twin::pdl_launch(where);
#endif
}

// mov.u64 %clock64 (10.24): the SM's cycles. The memory clobber keeps what is timed on its side.
FA3_DEV u64 clock(Where where = Where::here()) {
#if FA3_GPU
  u64 cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
#else
  return twin::clock(where);
#endif
}

// nanosleep.u32 (9.7.19.2).
FA3_DEV void nanosleep(u32 ns, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("nanosleep.u32 %0;" ::"r"(ns) : "memory");
#else
  twin::nanosleep(ns, where);
#endif
}

// trap (9.7.19.4): ends the grid with an error. Never in code of a consumer warpgroup: there it
// costs the kernel its setmaxnreg budget.
FA3_DEV void trap([[maybe_unused]] const char* message, Where where = Where::here()) {
#if FA3_GPU
  asm volatile("trap;" ::: "memory");
#else
  twin::trap(message, where);
#endif
}

}  // namespace fa3::ptx
