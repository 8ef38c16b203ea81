// SPDX-License-Identifier: BSD-3-Clause
// warp.cpp — shuffles, votes, redux, elect (PTX ISA 9.7.9.6, 9.7.13.9, 9.7.13.12, 9.7.13.14).
#include "device/selftest/warp.cuh"

#include <algorithm>
#include <array>

#include "conformance/cases/cases.h"

namespace fa3::selftest {
namespace {

// The lane whose value lane `lane` gets: its own when the source lies outside its group.
u32 source_lane(ShuffleKind kind, u32 lane, u32 operand, u32 width) {
  const u32 first = lane / width * width;
  const u32 last = first + width - 1;
  switch (kind) {
    case ShuffleKind::kIndex:
      return first + operand % width;
    case ShuffleKind::kXor:
      return (lane ^ operand) <= last ? lane ^ operand : lane;
    case ShuffleKind::kUp:
      return lane >= first + operand ? lane - operand : lane;
    case ShuffleKind::kDown:
      return lane + operand <= last ? lane + operand : lane;
  }
  return lane;
}

Experiment make_shuffle(ShuffleKind kind, Random& random) {
  std::vector<u32> in(32), out;
  for (u32& word : in) word = random.word();
  for (u32 w = 0; w < kShuffleWidths; ++w) {
    for (u32 operand = 0; operand < kShuffleOperands; ++operand) {
      for (u32 lane = 0; lane < 32; ++lane) {
        out.push_back(in[source_lane(kind, lane, operand, 1u << w)]);
      }
    }
  }
  Experiment experiment;
  experiment.shape.threads = 32;
  experiment.buffers = {{"in", to_bytes(in), {}},
                        {"out", Bytes(4 * out.size()), Expected{4, to_bytes(out), {}}}};
  experiment.args = [](const Placed& placed) {
    return bytes_of(ShuffleArgs{placed.at<u32>(0), placed.at<u32>(1)});
  };
  return experiment;
}

constexpr size_t kWords = static_cast<size_t>(VoteWord::kCount);

// What every lane of the mask must write in one round.
std::array<u32, kWords> vote_words(u32 mask, const u32* value) {
  std::array<u32, kWords> words{};
  const auto at = [&](VoteWord word) -> u32& { return words[static_cast<size_t>(word)]; };
  at(VoteWord::kAll) = 1;
  at(VoteWord::kMinU32) = at(VoteWord::kAnd) = ~0u;
  at(VoteWord::kElected) = at(VoteWord::kElectedAgain) = 1;
  int32_t least = INT32_MAX, most = INT32_MIN;
  for (u32 lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const u32 x = value[lane];
    if ((x & 1) != 0) {
      at(VoteWord::kBallot) |= 1u << lane;
      at(VoteWord::kAny) = 1;
    } else {
      at(VoteWord::kAll) = 0;
    }
    at(VoteWord::kAdd) += x;
    at(VoteWord::kMinU32) = std::min(at(VoteWord::kMinU32), x);
    at(VoteWord::kMaxU32) = std::max(at(VoteWord::kMaxU32), x);
    least = std::min(least, static_cast<int32_t>(x));
    most = std::max(most, static_cast<int32_t>(x));
    at(VoteWord::kAnd) &= x;
    at(VoteWord::kOr) |= x;
  }
  at(VoteWord::kMinI32) = static_cast<u32>(least);
  at(VoteWord::kMaxI32) = static_cast<u32>(most);
  return words;
}

Experiment make_vote(Random& random) {
  const std::vector<u32> masks = {
      ~0u,        1,          0x80000000,        0x0000FFFF,       0xFFFF0000,
      0x55555555, 0xAAAAAAA8, random.word() | 1, random.word() | 4};
  std::vector<u32> values;
  for (size_t round = 0; round < masks.size(); ++round) {
    // All predicates set, none, or any, in turn; few bits set or few clear, for and and or.
    const u32 set = round % 3 == 0 ? 1 : 0;
    const u32 clear = round % 3 == 1 ? 1 : 0;
    for (u32 lane = 0; lane < 32; ++lane) {
      u32 value = random.word();
      if (round % 2 == 0) value |= random.word() | random.word() | random.word();
      if (round % 2 == 1) value &= random.word() & random.word() & random.word();
      values.push_back((value | set) & ~clear);
    }
  }
  std::vector<u32> before(masks.size() * kWords * 32);
  for (u32& word : before) word = random.word();
  std::vector<u32> after = before;
  for (size_t round = 0; round < masks.size(); ++round) {
    const auto words = vote_words(masks[round], values.data() + 32 * round);
    for (size_t i = 0; i < 32 * kWords; ++i) {
      if ((masks[round] >> (i % 32) & 1) != 0) after[round * kWords * 32 + i] = words[i / 32];
    }
  }
  Experiment experiment;
  experiment.shape.threads = 32;
  experiment.buffers = {{"masks", to_bytes(masks), {}},
                        {"values", to_bytes(values), {}},
                        {"out", to_bytes(before), Expected{4, to_bytes(after), {}}}};
  experiment.shape.grid[0] = static_cast<u32>(masks.size());
  experiment.args = [](const Placed& placed) {
    return bytes_of(VoteArgs{placed.at<u32>(0), placed.at<u32>(1), placed.at<u32>(2)});
  };
  return experiment;
}

}  // namespace

void add_warp_cases(std::vector<Case>& cases) {
  const char* const header = "device/selftest/warp.cuh";
  constexpr const char* kKinds[] = {"kIndex", "kXor", "kUp", "kDown"};
  constexpr const char* kNames[] = {"idx", "bfly", "up", "down"};
  for (size_t i = 0; i < 4; ++i) {
    const auto kind = static_cast<ShuffleKind>(i);
    cases.push_back(
        {std::string("warp/shfl/") + kNames[i],
         device_program(header, std::string("fa3::selftest::shuffle<fa3::selftest::ShuffleKind::") +
                                    kKinds[i] + ">"),
         [=](Random& random) { return make_shuffle(kind, random); }});
  }
  cases.push_back({"warp/vote-redux-elect", device_program(header, "fa3::selftest::vote"),
                   [](Random& random) { return make_vote(random); }});
}

}  // namespace fa3::selftest
