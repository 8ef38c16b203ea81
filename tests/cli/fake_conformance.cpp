// SPDX-License-Identifier: BSD-3-Clause
// fake_conformance.cpp — libfa3_conformance.so of another version, in which only the version may
// be read.
#include <cstdlib>

#include "api/conformance.h"

namespace {

constexpr fa3::ConformanceLibrary kOther{
    "0.0.9",
    [](const fa3::ConformanceApi&, fa3_context*, const fa3_conformance_args*,
       const char**) noexcept -> fa3_status { std::abort(); },
    []() -> const fa3::HeaderSet& { std::abort(); },
    []() -> const std::vector<fa3::NamedProgram>& { std::abort(); }};

}  // namespace

const fa3::ConformanceLibrary* fa3_private_conformance_library(void) { return &kOther; }
