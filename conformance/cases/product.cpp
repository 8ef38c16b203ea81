// SPDX-License-Identifier: BSD-3-Clause
// product.cpp — images, fragments and descriptors for the wgmma program.
#include "conformance/cases/product.h"

#include <fmt/core.h>

namespace fa3::selftest {
namespace {

const char* text(bool value) { return value ? "true" : "false"; }

}  // namespace

Program product_program(const WgmmaCase& which, int steps) {
  const std::string count = steps == kWgmmaSteps ? "" : fmt::format(", {}", steps);
  return device_program(
      "device/selftest/wgmma.cuh",
      fmt::format("fa3::selftest::wgmma<fa3::selftest::WgmmaCase{{{}, {}, {}, {}, {}, {}}}{}>",
                  enumerator(which.a), enumerator(which.b), which.n, text(which.a_in_registers),
                  text(which.a_mn_major), text(which.b_mn_major), count));
}

Experiment product_experiment(const Product& product, const std::vector<uint32_t>& c,
                              std::optional<Expected> after) {
  Experiment experiment;
  experiment.shape.threads = 128;
  experiment.shape.smem_bytes = sizeof(WgmmaSmem);
  experiment.buffers = {{"a",
                         product.which.a_in_registers ? a_fragments(product.a)
                                                      : smem_image(product.a, product.a_layout),
                         {}},
                        {"b", smem_image(product.b, product.b_layout), {}},
                        {"c", to_bytes(c), {}},
                        {"d", Bytes(4 * c.size()), std::move(after)}};
  WgmmaArgs args{};
  args.a_desc = product.a_layout.descriptor();
  args.b_desc = product.b_layout.descriptor();
  for (size_t step = 0; step < product.a_layout.offset.size(); ++step) {
    args.a_offset[step] = product.a_layout.offset[step];
    args.b_offset[step] = product.b_layout.offset[step];
  }
  args.a_bytes = static_cast<u32>(experiment.buffers[kProductA].before.size());
  args.b_bytes = static_cast<u32>(experiment.buffers[kProductB].before.size());
  args.accumulate = product.accumulate;
  experiment.args = [args](const Placed& placed) {
    WgmmaArgs full = args;
    full.a = placed.at<u8>(kProductA);
    full.b = placed.at<u8>(kProductB);
    full.c = placed.at<u32>(kProductC);
    full.d = placed.at<u32>(kProductD);
    return bytes_of(full);
  };
  return experiment;
}

}  // namespace fa3::selftest
