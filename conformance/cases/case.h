// SPDX-License-Identifier: BSD-3-Clause
// case.h — a conformance case: a program, how its inputs are made, and what it must write.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "conformance/model/bytes.h"
#include "conformance/model/random.h"
#include "conformance/programs.h"
#include "runtime/gpu_runtime.h"

namespace fa3::selftest {

// What a buffer must hold when the program has run.
struct Expected {
  int element_bytes = 4;  // 1, 2 or 4: the unit in which differences are reported
  Bytes bytes;
  // Empty: bit for bit. Else the elements are f32, or bf16 where they have 2 bytes, and |got −
  // expected| ≤ bound, element by element; NaN matches NaN, Inf the same Inf.
  std::vector<float> bound = {};
};

struct Buffer {
  const char* name;
  Bytes before;                   // uploaded; its size is the buffer's
  std::optional<Expected> after;  // downloaded and compared
};

struct Map {
  TensorMapSpec spec;  // base is filled in: the begin of `buffer`
  size_t buffer = 0;
};

// Where the runtime placed the buffers and maps.
struct Placed {
  std::vector<void*> buffers;
  std::vector<TensorMap> maps;

  template <class T>
  T* at(size_t buffer) const {
    return static_cast<T*>(buffers[buffer]);
  }
};

struct Experiment {
  LaunchShape shape;
  int launches = 1;  // back to back, without waiting in between
  std::vector<Buffer> buffers;
  std::vector<Map> maps;
  std::function<Bytes(const Placed&)> args;  // the program's argument struct
};

struct Case {
  std::string name;  // "wgmma/ss/bf16/n64/…"
  Program program;
  std::function<Experiment(Random&)> make;
};

}  // namespace fa3::selftest
