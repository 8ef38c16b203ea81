// SPDX-License-Identifier: BSD-3-Clause
// mask.h — the rules of fa3.h on what hides keys: mask, window, its alignment, attn_mask.
#pragma once

#include "api/args.h"
#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// attn_mask and dattn_mask beside the other tensors; each of them has passed check_tensor.
Status check_mask_tensors(const Args& args);

// mask, left, right and mask_alignment, and the extents of dattn_mask, into the problem, whose
// dimensions are known.
Status read_mask(const Args& args, Problem& problem);

}  // namespace fa3
