// SPDX-License-Identifier: BSD-3-Clause
// v_image_args.h — what a launch of the kernel that transposes 8-bit V takes.
#pragma once

#include "device/sm90/fwd/args.h"

namespace fa3::sm90 {

struct VImageArgs {
  TensorMap v;  // as FwdArgs
  RowAxis kv_axis;
  VImage image;
  i32 batch, tiles;  // tiles: of a sequence; varlen: not used
};

}  // namespace fa3::sm90
