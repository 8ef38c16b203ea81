// SPDX-License-Identifier: BSD-3-Clause
// properties_test.cpp — random problems, forward and backward, against the FP64 reference.
#include "tests/kit/property.h"

namespace fa3 {
namespace {

void expect_right_on_random_problems(const char* name, bool backward, int cases) {
  const kit::Context context = kit::make_context();
  kit::expect_property(name, cases, [&] {
    const verify::Config config = *kit::any_config(backward);
    const verify::Report report = verify::check(config, context.get());
    if (!report.ok) RC_FAIL(report.text);
  });
}

TEST(CpuProperty, RandomForward_MatchesReference) {
  expect_right_on_random_problems("forward", false, 600);
}

TEST(CpuProperty, RandomBackward_MatchesReference) {
  expect_right_on_random_problems("backward", true, 400);
}

}  // namespace
}  // namespace fa3
