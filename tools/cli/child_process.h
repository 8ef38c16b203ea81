// SPDX-License-Identifier: BSD-3-Clause
// child_process.h — work in a child process, which may crash or hang without taking this one along.
// Needs nothing but POSIX; tests/gpu uses it too.
#pragma once

#include <functional>
#include <string>

namespace fa3::cli {

using Send = std::function<void(const std::string& line)>;

struct ChildWork {
  std::function<void(const Send& send)> work;             // in the child; a line has no line break
  std::function<void(const std::string& line)> received;  // here, for each line sent
  std::function<int()> seconds;                           // limit for the next line
};

// Forks and waits for the child, which is killed when it takes too long. "" when the work
// finished, else how it ended: "was ended by signal 11 (Segmentation fault)". For a process of
// one thread: the child has no other.
std::string run_in_child(const ChildWork& task);

}  // namespace fa3::cli
