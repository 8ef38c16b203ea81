// SPDX-License-Identifier: BSD-3-Clause
// arguments.h — parts of kernels' arguments that no architecture decides: lengths of sequences, and
// the tensors that functors read.
#pragma once

#include "core/problem.h"
#include "device/sm90/common/max_logit.h"
#include "device/sm90/common/sink.h"
#include "device/warp/element.h"
#include "device/warp/sequence_rows.h"

namespace fa3 {

// The lengths of the sequences of a tensor's axis. batch_rows is 0: rows count within a sequence,
// or from the first of a varlen tensor.
RowAxis lengths_of(const Problem& problem, TensorId id, const Buffers& buffers);

// slope_factor: from natural units into those of the kernel's scores.
ElementArgs element_args_of(const Problem& problem, const Buffers& buffers, float slope_factor);

sm90::SinkArgs sink_args_of(const Problem& problem, const Buffers& buffers);
sm90::MaxLogitArgs max_logit_args_of(const Problem& problem, const Buffers& buffers);

}  // namespace fa3
