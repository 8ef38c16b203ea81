// SPDX-License-Identifier: BSD-3-Clause
// part.h — what some steps of a plan compute together: a problem, and where its tensors are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/problem.h"

namespace fa3 {

// The call's problem, or one of those that a recipe makes of it.
struct Part {
  // A tensor of the problem that is not the call's of this name: it lies in the workspace, or the
  // call has another name for it.
  struct Source {
    static constexpr size_t kOfCall = static_cast<size_t>(-1);

    TensorId id;
    size_t offset = kOfCall;
    TensorId call = id;
  };

  Problem problem;
  std::vector<Source> sources;

  // Does an earlier step write it?
  bool in_workspace(TensorId id) const {
    return std::ranges::any_of(
        sources, [id](const Source& s) { return s.id == id && s.offset != Source::kOfCall; });
  }

  // The problem's tensors in a run with those of the call and an aligned workspace.
  Buffers buffers(const Buffers& call, std::byte* workspace) const {
    Buffers own = call;
    for (const Source& s : sources)
      own.data[s.id] = s.offset == Source::kOfCall ? call.data[s.call] : workspace + s.offset;
    return own;
  }
};

}  // namespace fa3
