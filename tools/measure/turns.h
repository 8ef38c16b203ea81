// SPDX-License-Identifier: BSD-3-Clause
// turns.h — variants measured in turns (A B C A B C …): a GPU's clock and power drift by more than
// variants differ, so a variant is compared with the first one of the same round.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tools/measure/nvml.h"

namespace fa3::measure {

// What turns are made of. Energy needs slices of 1 s: its counter moves every 20 to 100 ms.
struct TurnOptions {
  int rounds = 11;
  double slice_ms = 14;   // of a variant in a round
  double warm_ms = 2000;  // before the first round, so that all rounds are at the power limit
};

// Of a variant: medians over rounds; ratios are the first variant's time over this one's.
struct Turns {
  double ms = 0, mhz = 0, joules = 0;  // of one run; joules 0 where slices are too short
  double ratio = 1, ratio_low = 1, ratio_high = 1;  // four fifths of the rounds lie between

  // 1 or −1 where the rounds agree that the variant is faster or slower, 0 where they do not.
  int verdict() const { return ratio_low > 1 ? 1 : ratio_high < 1 ? -1 : 0; }
};

inline double quantile(std::vector<double> values, double q) {
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

// run(v, n): runs variant v n times and returns the milliseconds of all.
inline std::vector<Turns> in_turns(size_t variants, const std::function<double(size_t, int)>& run,
                                   const Nvml& nvml, const TurnOptions& options) {
  constexpr double kEnergySliceMs = 900;
  std::vector<int> runs(variants);
  for (size_t v = 0; v < variants; ++v) {
    run(v, 1);
    runs[v] = std::max(1, static_cast<int>(options.slice_ms / (run(v, 2) / 2)));
  }
  for (double warm = 0; warm < options.warm_ms;)
    for (size_t v = 0; v < variants; ++v) warm += run(v, runs[v]);
  struct Rounds {
    std::vector<double> ms, mhz, joules, ratio;
  };
  std::vector<Rounds> rounds(variants);
  for (int round = 0; round < options.rounds; ++round) {
    for (size_t v = 0; v < variants; ++v) {
      const double joules = nvml.joules();
      const double ms = run(v, runs[v]) / runs[v];
      rounds[v].mhz.push_back(nvml.mhz());
      rounds[v].joules.push_back((nvml.joules() - joules) / runs[v]);
      rounds[v].ms.push_back(ms);
      rounds[v].ratio.push_back(rounds[0].ms.back() / ms);
    }
  }
  std::vector<Turns> result;
  for (const Rounds& of : rounds) {
    const double joules = options.slice_ms < kEnergySliceMs ? 0 : quantile(of.joules, 0.5);
    result.push_back({quantile(of.ms, 0.5), quantile(of.mhz, 0.5), joules, quantile(of.ratio, 0.5),
                      quantile(of.ratio, 0.1), quantile(of.ratio, 0.9)});
  }
  return result;
}

}  // namespace fa3::measure
