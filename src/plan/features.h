// SPDX-License-Identifier: BSD-3-Clause
// features.h — features that problems ask for and kernels take, as sets: a refusal is their
// difference, and the table of docs/guide/support.md shows them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "core/problem.h"
#include "core/status.h"

namespace fa3 {

// The types of Q first; K has its type or is kE4m3Keys, and I8 ones may have 16-bit V.
enum class Feature {
  kF32,
  kF16,
  kBf16,
  kE4m3,
  kI8,
  kCausal,
  kWindow,
  kTopLeft,
  kVarlen,
  kSeqused,
  kGroups,
  kSoftcap,
  kNegativeScale,
  kAlibi,
  kSequenceIds,
  kBoolMask,
  kAddedMask,
  kSinks,
  kLse,
  kF32Outputs,
  kMaskGradient,
  kSinkGradient,
  kDeterministic,
  kPages,
  kKvSlots,
  kKvBegin,
  kBatchInvariant,
  kAppend,
  kRotary,
  kChunk,
  kTree,
  kMaxLogit,
  kE4m3Keys,
};
inline constexpr int kFeatureCount = static_cast<int>(Feature::kE4m3Keys) + 1;

class Features {
 public:
  constexpr Features() = default;
  constexpr Features(std::initializer_list<Feature> features) {
    for (const Feature f : features) add(f);
  }
  constexpr void add(Feature f, bool yes = true) { bits_ |= yes ? bit(f) : 0; }
  constexpr bool has(Feature f) const { return (bits_ & bit(f)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr Features operator|(Features other) const { return Features(bits_ | other.bits_); }
  constexpr Features operator&(Features other) const { return Features(bits_ & other.bits_); }
  constexpr Features operator-(Features other) const { return Features(bits_ & ~other.bits_); }
  std::vector<Feature> list() const;

 private:
  constexpr explicit Features(uint64_t bits) : bits_(bits) {}
  static constexpr uint64_t bit(Feature f) { return uint64_t{1} << static_cast<int>(f); }

  uint64_t bits_ = 0;
};

inline constexpr Features kTypeFeatures = {Feature::kF32, Feature::kF16, Feature::kBf16,
                                           Feature::kE4m3, Feature::kI8};

// The features that a forward or backward asks for.
Features features_of(const Problem& problem);

// A set that the kernels of one operation take together.
struct KernelFeatures {
  const char* name;  // in the table: "forward, 16 bits"
  fa3_op op;
  Features takes;
};

// UNSUPPORTED with what the problem asks for and no entry of its operation takes. arch: "sm90".
Status check_features(const Problem& problem, std::span<const KernelFeatures> kernels,
                      const char* arch);

// The entries as columns of a table in Markdown, line by line.
std::vector<std::string> support_table(std::span<const KernelFeatures> kernels);

}  // namespace fa3
