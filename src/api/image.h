// SPDX-License-Identifier: BSD-3-Clause
// image.h — v_image of a forward or a quantisation: whether it fits, and its tiles.
#pragma once

#include "api/args.h"
#include "core/problem.h"

namespace fa3 {

// p: with its dimensions; ranks have been checked. No tiles where there is no image.
Result<ImageTile> read_image(const Args& args, const Problem& p);

}  // namespace fa3
