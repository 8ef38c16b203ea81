// SPDX-License-Identifier: BSD-3-Clause
// append.h — problems whose last keys are new: what a run appends, and what must then be there.
#pragma once

#include <string>
#include <vector>

#include "fa3/fa3.h"
#include "tools/verify/compare.h"
#include "tools/verify/problem.h"

namespace fa3::verify {

// "" when what a Config says of new keys fits the rest.
std::string contradiction_of_append(const Config& c);

// Takes the last keys of each sequence out of k and v, where they become NaN, into k_new and v_new,
// makes rotary tables, and keeps what k, v, q and lengths are after appending: Tensors::after.
void take_new_keys(const Config& c, const MemoryOrder& memory_q, const MemoryOrder& memory_new,
                   Tensors* tensors);

// The call of a problem on what there is after appending.
fa3_forward_args after_appending(fa3_forward_args args, const Tensors& tensors);

// k and v of a call that has run: new rows as they should be within a unit of their type, all
// others as they were.
std::vector<OutputResult> compare_appended(const Config& c, const Tensors& tensors);

}  // namespace fa3::verify
