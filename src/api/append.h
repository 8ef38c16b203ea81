// SPDX-License-Identifier: BSD-3-Clause
// append.h — arguments that say what a forward first appends to its keys and values.
#pragma once

#include "core/problem.h"
#include "core/scalars.h"
#include "core/status.h"

namespace fa3 {

// Whether the call writes the tensor.
bool writes(const Args& args, TensorId id);

// k_new, v_new and what belongs to them: whether they fit the other arguments, each of which has
// been checked by itself.
Status check_append(const Args& args);

// The same, by numbers: whether dense rows have room. Of a problem whose tensors have the shapes
// that they need.
Status check_room(const Problem& problem);

}  // namespace fa3
