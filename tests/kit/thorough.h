// SPDX-License-Identifier: BSD-3-Clause
// thorough.h — which part of a test runs: what `make test` has minutes for, or the rest, as in
// `make ci`.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace fa3::kit {

// RC_PARAMS asks for more random problems (property.h); who sets it has the time for the rest too.
inline bool thorough() { return std::getenv("RC_PARAMS") != nullptr; }

// Of the parts of a test that are more than `make test` has minutes for, every n-th is due there,
// and the others in `make ci`.
inline bool due(size_t part, size_t n) { return (part % n == 0) != thorough(); }

}  // namespace fa3::kit
