// SPDX-License-Identifier: BSD-3-Clause
// run.h — runs a problem and keeps the bits of its outputs.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tests/kit/context.h"
#include "tools/verify/fields.h"

namespace fa3::kit {

// By the names of their fields.
using OutputBits = std::map<std::string, std::vector<std::byte>>;

template <class Args>
void add_outputs(const Args& args, OutputBits& bits) {
  verify::for_each_tensor(args, [&](const fa3_field& f, const fa3_tensor& t) {
    if (verify::is_output(f) && t.rank > 0) bits[f.name] = bytes_of(t);
  });
}

// Plans and runs one operation with a workspace of exactly the bytes asked for, filled with
// `garbage`, behind which guard bytes must survive.
template <class Args>
fa3_status run_planned(fa3_context* context, const Args& args, std::byte garbage) {
  constexpr size_t kGuard = 256;
  fa3_plan* raw = nullptr;
  fa3_status status;
  if constexpr (std::is_same_v<Args, fa3_forward_args>)
    status = fa3_plan_forward(context, &args, &raw);
  else
    status = fa3_plan_backward(context, &args, &raw);
  const Plan plan(raw);
  if (status != FA3_OK) return status;
  const size_t bytes = fa3_plan_workspace_bytes(plan.get());
  std::vector<std::byte> workspace(bytes + 2 * kGuard, garbage);
  std::byte* begin = workspace.data() + kGuard + 1;  // any alignment
  status = fa3_plan_run(plan.get(), &args, begin, bytes, nullptr);
  for (std::byte* at = workspace.data(); at < workspace.data() + workspace.size(); ++at)
    if (at < begin || at >= begin + bytes) {
      EXPECT_EQ(*at, garbage) << "the workspace was overrun";
      if (*at != garbage) break;
    }
  return status;
}

// Runs forward and, if the problem asks for it, backward; outputs start as NaN.
inline OutputBits output_bits(const verify::Config& config, fa3_context* context,
                              std::byte garbage = std::byte{0xff}) {
  const verify::Tensors t = verify::make_tensors(config);
  OutputBits bits;
  const fa3_forward_args forward = verify::forward_args(config, t);
  EXPECT_EQ(run_planned(context, forward, garbage), FA3_OK) << fa3_last_error();
  add_outputs(forward, bits);
  if (!config.backward) return bits;
  const fa3_backward_args backward = verify::backward_args(config, t);
  EXPECT_EQ(run_planned(context, backward, garbage), FA3_OK) << fa3_last_error();
  add_outputs(backward, bits);
  return bits;
}

}  // namespace fa3::kit
