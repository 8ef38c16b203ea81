// SPDX-License-Identifier: BSD-3-Clause
// device_text.h — where a command computed, as its text and its JSON say it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "session.h"

namespace fa3::cli {

// "cpu (avx3_bf16, 2 threads) on Some Processor", "cuda on NVIDIA H200".
std::string device_text(const Session& session);

// Fields backend, device, instruction_set and threads (null and 0 on a GPU), copied: whether the
// tensors went to a GPU and back; gpu_declined: why auto did not use a Hopper GPU, else null.
void add_device(const Session& session, nlohmann::ordered_json& json);

// A sentence about copies, or about the GPU that was not used; "" without a GPU.
std::string gpu_note(const Session& session);

}  // namespace fa3::cli
