// SPDX-License-Identifier: BSD-3-Clause
// thorough.h — whether a test does all it can, as in `make ci`, or the part that `make test` has
// minutes for.
#pragma once

#include <cstdlib>

namespace fa3::kit {

// RC_PARAMS asks for more random problems (property.h); who sets it has the time for the rest too.
inline bool thorough() { return std::getenv("RC_PARAMS") != nullptr; }

}  // namespace fa3::kit
