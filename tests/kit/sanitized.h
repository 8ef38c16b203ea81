// SPDX-License-Identifier: BSD-3-Clause
// sanitized.h — is this build one with a sanitizer? Such builds are ten times slower and look for
// other faults, so tests run a part of their seeds and random problems there.
#pragma once

namespace fa3::kit {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

// The head dim whose kernels the simulator of such a build has (src/sim/CMakeLists.txt).
inline constexpr int kSanitizedHeadDim = 64;

}  // namespace fa3::kit
