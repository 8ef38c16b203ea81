// SPDX-License-Identifier: BSD-3-Clause
// sync.cpp — named barriers, clusters, dependent grids.
#include "device/selftest/sync.cuh"

#include <fmt/core.h>

#include "conformance/cases/cases.h"

namespace fa3::selftest {
namespace {

constexpr const char* kSyncHeader = "device/selftest/sync.cuh";

std::vector<u32> random_words(size_t count, Random& random) {
  std::vector<u32> words(count);
  for (u32& word : words) word = random.word();
  return words;
}

Experiment make_named(Random& random) {
  const std::vector<u32> in = random_words(32 * kNamedRounds, random);
  std::vector<u32> out = in;
  for (size_t i = 32; i < out.size(); ++i) out[i] += out[i - 32];
  Experiment experiment;
  experiment.shape.threads = 96;
  experiment.shape.smem_bytes = sizeof(NamedSmem);
  experiment.buffers = {{"in", to_bytes(in), {}},
                        {"out", Bytes(4 * out.size()), Expected{4, to_bytes(out)}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(NamedArgs{placed.at<u32>(0), placed.at<u32>(1)});
  };
  return experiment;
}

// Two clusters.
Experiment make_cluster(u32 size, Random& random) {
  const u32 ctas = 2 * size;
  const std::vector<u32> in = random_words(32 * ctas, random);
  std::vector<u32> sent(in.size() * size), read = sent, copied = in;
  for (u32 cta = 0; cta < ctas; ++cta) {
    const u32 first = cta / size * size, rank = cta % size;
    for (u32 lane = 0; lane < 32; ++lane) {
      for (u32 other = 0; other < size; ++other) {
        const u32 value = in[32 * (first + other) + lane];
        sent[(cta * size + other) * 32 + lane] = value + rank;
        read[(cta * size + other) * 32 + lane] = value;
      }
      copied[32 * cta + lane] = in[32 * (first + (rank + size - 1) % size) + lane];
    }
  }
  Experiment experiment;
  experiment.shape.grid[0] = ctas;
  experiment.shape.cluster = size;
  experiment.shape.threads = 32;
  experiment.shape.smem_bytes = sizeof(ClusterSmem);
  experiment.buffers = {{"in", to_bytes(in), {}},
                        {"sent", Bytes(4 * sent.size()), Expected{4, to_bytes(sent)}},
                        {"read", Bytes(4 * read.size()), Expected{4, to_bytes(read)}},
                        {"copied", Bytes(4 * copied.size()), Expected{4, to_bytes(copied)}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(
        ClusterArgs{placed.at<u32>(0), placed.at<u32>(1), placed.at<u32>(2), placed.at<u32>(3)});
  };
  return experiment;
}

Experiment make_dependent(bool pdl, Random& random) {
  constexpr size_t kCtas = 24;
  const std::vector<u32> before = random_words(32 * kCtas, random);
  Experiment experiment;
  experiment.shape.grid[0] = kCtas;
  experiment.shape.threads = 32;
  experiment.shape.pdl = pdl;
  experiment.launches = 6;
  std::vector<u32> after = before, next(before.size());
  for (int launch = 0; launch < experiment.launches; ++launch) {
    for (size_t i = 0; i < after.size(); ++i) {
      next[i] = 3 * after[(kCtas - 1 - i / 32) * 32 + i % 32] + 1;
    }
    after = next;
  }
  experiment.buffers = {{"value", to_bytes(before), Expected{4, to_bytes(after)}}};
  experiment.args = [](const Placed& placed) { return bytes_of(DependentArgs{placed.at<u32>(0)}); };
  return experiment;
}

}  // namespace

void add_sync_cases(std::vector<Case>& cases) {
  cases.push_back({"sync/named-barriers",
                   device_program(kSyncHeader, "fa3::selftest::named_barriers"), &make_named});
  for (const u32 size : {2u, 4u, kMaxCluster}) {
    cases.push_back({fmt::format("sync/cluster/{}", size),
                     device_program(kSyncHeader, "fa3::selftest::cluster"),
                     [=](Random& random) { return make_cluster(size, random); }});
  }
  for (const bool pdl : {false, true}) {
    cases.push_back({fmt::format("sync/grids/{}", pdl ? "dependent" : "plain"),
                     device_program(kSyncHeader, "fa3::selftest::dependent"),
                     [=](Random& random) { return make_dependent(pdl, random); }});
  }
}

}  // namespace fa3::selftest
