// SPDX-License-Identifier: BSD-3-Clause
// plan_kernel.h — the contract of a kernel's plan. A plan is a struct; the functions stand in its
// namespace and are found by overload. How it is launched: backend/launch/.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/problem.h"
#include "plan/slices.h"
#include "plan/work.h"
#include "runtime/program.h"

namespace fa3 {

// The base of all kernels' plans, with the functions that most kernels have no need to define.
struct PlainKernel {};

// Slices of the workspace that the kernel writes, and those of earlier steps that it reads.
inline std::vector<Slice> writes(const PlainKernel&) { return {}; }
inline std::vector<const char*> reads(const PlainKernel&) { return {}; }

// For which head dims the kernel is: "192 and 128".
inline std::string head_dims_text(const PlainKernel&) { return "any"; }

// A kernel that can stand in for this one, more slowly, with the same slices; of the row's own head
// dims.
template <std::derived_from<PlainKernel> K>
std::optional<K> wider(const K&) {
  return std::nullopt;
}

// Whether a tuning names the kernel's row; the row that it names and why that is not used, or "".
inline bool tuned(const PlainKernel&) { return false; }
inline std::string declined(const PlainKernel&) { return ""; }

// The tiles of the v_image that the kernel reads.
inline ImageTile image_of(const PlainKernel&) { return {}; }

// Its estimate in fa3_explain().
inline void describe_estimate(const PlainKernel&, const Problem&, const Work&, Json&) {}

template <class K>
concept PlanKernel = std::derived_from<K, PlainKernel> &&
    requires(const K& kernel, const Problem& problem, const Work& work, Json& json) {
  // The program that is launched, and its grid.
  { program_of(kernel) } -> std::same_as<Program>;
  { shape_of(kernel) } -> std::same_as<LaunchShape>;
  { writes(kernel) } -> std::same_as<std::vector<Slice>>;
  { reads(kernel) } -> std::same_as<std::vector<const char*>>;
  // Its name in kernel bundles: "fwd/d128/bf16/causal/dense".
  { name_of(kernel) } -> std::same_as<std::string>;
  { head_dims_text(kernel) } -> std::same_as<std::string>;
  { wider(kernel) } -> std::same_as<std::optional<K>>;
  { tuned(kernel) } -> std::same_as<bool>;
  { declined(kernel) } -> std::convertible_to<std::string>;
  { image_of(kernel) } -> std::same_as<ImageTile>;
  // Its part of fa3_explain().
  describe(kernel, problem, json);
  describe_estimate(kernel, problem, work, json);
};

}  // namespace fa3
