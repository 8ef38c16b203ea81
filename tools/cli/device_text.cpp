// SPDX-License-Identifier: BSD-3-Clause
// device_text.cpp — where a command computed.
#include "device_text.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tools/verify/problem.h"

namespace fa3::cli {

std::string device_text(const Session& session) {
  const fa3_device_info device = session.device();
  if (session.on_gpu())
    return fmt::format("{} on {}", verify::backend_name(device.backend), device.name);
  return fmt::format("{} ({}, {} threads) on {}", verify::backend_name(device.backend),
                     device.instruction_set, device.num_threads, device.name);
}

void add_device(const Session& session, nlohmann::ordered_json& json) {
  const fa3_device_info device = session.device();
  json["backend"] = verify::backend_name(device.backend);
  json["device"] = device.name;
  const bool gpu = session.on_gpu();
  json["instruction_set"] = gpu ? nullptr : nlohmann::ordered_json(device.instruction_set);
  json["threads"] = gpu ? 0 : device.num_threads;
  json["copied"] = gpu;
  json["gpu_declined"] = nullptr;
  if (!session.gpu_declined().empty()) json["gpu_declined"] = session.gpu_declined();
}

std::string gpu_note(const Session& session) {
  if (session.on_gpu()) return "tensors copied to the GPU and back, which no time includes";
  if (session.gpu_declined().empty()) return "";
  return "the GPU is not used: " + session.gpu_declined();
}

}  // namespace fa3::cli
