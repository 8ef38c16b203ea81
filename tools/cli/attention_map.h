// SPDX-License-Identifier: BSD-3-Clause
// attention_map.h — the attention probabilities of one head as a heat map.
#pragma once

#include <cstdint>

#include "fa3/fa3.h"
#include "picture.h"
#include "progress.h"

namespace fa3::cli {

// P = exp(S' − LSE) of query head `head` in sequence `batch`, from q, k and the LSE that a forward
// has written, at most 1024 × 1024 cells. A cell of a longer sequence is the mean over its queries
// of the sum over its keys: the probability that such a query attends to those keys, so that the
// rows still add up to 1. Throws CliError{kBadInput} when there is no such head, sequence, query or
// key, CliError{kInterrupted}.
HeatMap attention_map(const fa3_forward_args& args, int64_t head, int64_t batch,
                      Progress& progress);

}  // namespace fa3::cli
