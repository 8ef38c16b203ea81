// SPDX-License-Identifier: BSD-3-Clause
// features.h — what the kernels of Hopper take. Limits of numbers, such as head dims, stand where
// plans are made.
#pragma once

#include "plan/features.h"

namespace fa3::sm90 {

inline constexpr Features kAttention = {
    Feature::kCausal, Feature::kWindow,        Feature::kVarlen,     Feature::kSeqused,
    Feature::kGroups, Feature::kSoftcap,       Feature::kAlibi,      Feature::kSequenceIds,
    Feature::kLse,    Feature::kNegativeScale, Feature::kF32Outputs, Feature::kSinks,
    Feature::kChunk};
inline constexpr Features k16Bits = {Feature::kF16, Feature::kBf16};
inline constexpr Features k8Bits = {Feature::kE4m3, Feature::kI8};
inline constexpr Features kCaches = {Feature::kPages, Feature::kKvSlots, Feature::kKvBegin,
                                     Feature::kAppend, Feature::kRotary};
inline constexpr Features kMasks16 = {Feature::kBoolMask, Feature::kAddedMask};

inline constexpr KernelFeatures kKernelFeatures[] = {
    {"forward, 16 bits", FA3_OP_FORWARD,
     kAttention | k16Bits | kMasks16 | kCaches | Features{Feature::kTree, Feature::kMaxLogit}},
    {"the same, `batch_invariant`", FA3_OP_FORWARD,
     kAttention | k16Bits | kCaches | Features{Feature::kBatchInvariant}},
    {"forward, 8 bits", FA3_OP_FORWARD, kAttention | k8Bits},
    {"forward, K and V of FP8", FA3_OP_FORWARD,
     (kAttention - Features{Feature::kSequenceIds}) | k16Bits |
         (kCaches - Features{Feature::kAppend, Feature::kRotary}) |
         Features{Feature::kE4m3, Feature::kE4m3Keys, Feature::kTree, Feature::kMaxLogit}},
    {"backward", FA3_OP_BACKWARD,
     (kAttention - Features{Feature::kLse}) | k16Bits | kMasks16 |
         Features{Feature::kMaskGradient, Feature::kSinkGradient, Feature::kDeterministic}},
};

// UNSUPPORTED with the difference.
inline Status check_features(const Problem& problem) {
  return fa3::check_features(problem, kKernelFeatures, "sm90");
}

}  // namespace fa3::sm90
