#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# tbb_arena_memory.sh — oneTBB 2021.10.0: a tbb::task_arena that has run tasks keeps its memory for
# the rest of the process, although its destructor has run.
#
# Of a loop that makes an arena, runs a parallel_for in it and destroys it, each round leaves 3.6 kB
# for each of the arena's threads. An arena that is initialised and never runs leaves nothing. No
# tool that looks for leaks at the end sees it, for the scheduler still knows the arenas. 2021.11.0
# and later free them; Debian 12 has 2021.8. A library that makes an arena for each of its handles
# loses memory with every handle.
#
# Seen: MB that the process grows by over 1000 arenas of 2 threads.
#   2021.10.0 with tasks: 7
#   2021.10.0 without: 0
#   2021.11.0 with tasks: 0
. "$(dirname "$0")/kit.sh"
cat >arenas.cpp <<'END'
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <cstdio>
#include <fstream>

long resident_kb() {
  std::ifstream pages("/proc/self/statm");
  long all = 0, resident = 0;
  pages >> all >> resident;
  return resident * 4;
}

void arenas(int count, bool with_tasks) {
  for (int i = 0; i < count; ++i) {
    tbb::task_arena arena;
    arena.initialize(2, 1);
    if (with_tasks) {
      arena.execute([] { tbb::parallel_for(0, 4, [](int) {}, tbb::simple_partitioner()); });
    }
  }
}

int main(int argc, char**) {
  const bool with_tasks = argc == 1;
  arenas(200, with_tasks);  // what a process has once
  const long before = resident_kb();
  arenas(1000, with_tasks);
  std::printf("%ld\n", (resident_kb() - before + 500) / 1000);
}
END
grown() { # any argument: without tasks
  LD_LIBRARY_PATH="$folder/venv/lib" ./arenas "$@"
}
of_version() {
  install "tbb==$1" "tbb-devel==$1"
  g++ -std=c++17 -O1 -I "$folder/venv/include" arenas.cpp -o arenas -L "$folder/venv/lib" -ltbb
}
of_version 2021.10.0
with=$(grown) without=$(grown without)
of_version 2021.11.0
as_seen "2021.10.0 with tasks: $with
2021.10.0 without: $without
2021.11.0 with tasks: $(grown)"
