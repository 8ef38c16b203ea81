// SPDX-License-Identifier: BSD-3-Clause
// span.h — how much memory a tensor takes, and whether a problem writes any.
#pragma once

#include "core/problem.h"

namespace fa3 {

// Elements from a tensor's first to its last, gaps included; 0 where it has none. The tensor has a
// layout.
int64_t span_of(const Problem& problem, TensorId id);

// How many there are of what the tensor's layout has strides for; not of an image, which has none.
struct Counts {
  int64_t batch, rows, heads, columns;
};
Counts counts_of(const Problem& problem, TensorId id);

// Elements of a tensor without a layout.
int64_t elements_of(const Problem& problem, TensorId id);

// Whether it is a sum over rows, as dattn_mask is: an output that there is without any, and then 0.
bool is_sum(const Problem& problem, TensorId id);

// No row of any output, nor a sum; without queries the gradients of keys and values still have
// some, and so have a cache's new keys.
bool has_no_output_rows(const Problem& problem);

}  // namespace fa3
