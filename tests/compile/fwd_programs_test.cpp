// SPDX-License-Identifier: BSD-3-Clause
// fwd_programs_test.cpp — every row of the forward kernel's table compiles for sm_90a as it is
// meant to: in registers, without advisories, and the inner loops in the order that makes softmax
// overlap the GEMMs and of the length that the roofline assumes. ptxas gives up any of these
// silently or with a note.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/sm90/fwd/configs.h"
#include "plan/sm90/fwd/names.h"
#include "plan/sm90/fwd/plan.h"
#include "plan/sm90/roofline.h"
#include "tests/kit/cubin.h"
#include "tests/kit/nvrtc.h"
#include "tests/kit/thorough.h"

namespace fa3::sm90 {
namespace {

using testing::HasSubstr;
using testing::Not;

// K is free again at most this many instructions after its GEMM is complete, and this many more
// per key in loops with a mask or another score: ptxas 13.0 moves that work ahead of the arrival.
constexpr size_t kArriveWithin = 20;
constexpr double kArrivePerKey = 0.75;
// And with 8 bits, where it converts scores and looks at maxima first.
constexpr size_t kArriveScaled = 44;
// Of a loop's exponentials, those after the wait for P·V, which thus overlap no GEMM.
// ptxas 13.0 sinks 8 or 9 of the 66 of a tile of 128 keys below it, in loops with a mask up to 15;
// of larger tiles as large a part.
constexpr size_t kLateMufu = 15;
// Known: three consumers under a mask, which may skip tiles (d64), have 54 to 63 there, in the
// loop without a mask as well.
bool sinks_exponentials(const FwdConfig& c) { return c.skips(); }
// Of a loop's instructions, those that spill. Known: where tiles take 220 registers, E4M3 loads one
// value under a mask, INT8 two to five. Tiles of fewer keys are slower (docs/tuning/fwd8_sm90.md).
size_t most_spills(const FwdConfig& c) {
  if (c.tile_registers() <= 208) return 0;
  return is_int8(c.types.qk) ? 5 : 1;
}

Problem problem(const FwdRow& row, fa3_mask mask, bool ragged) {
  const int64_t seqlen = row.max_seqlen_q > 0 ? row.max_seqlen_q : 8192;
  Problem p;
  p.batch = p.heads_kv = 1;
  // Enough Q tiles for the row, or too few.
  p.heads_q = row.config.tile.consumer_wgs == 3 ? 1000 : 1;
  p.head_dim_qk = row.config.tile.head_dim_qk;
  p.head_dim_v = row.config.tile.head_dim_v;
  p.q.rows = p.q.max_seqlen = p.kv.rows = p.kv.max_seqlen = seqlen;
  p.kv.seqused = ragged;
  p.mask = mask;
  p.left = p.right = row.sums() != Sums::kShort ? 3000 : 20;  // of windows
  p.softmax_scale = 0.1;
  const FwdConfig& c = row.config;
  if (c.types.v8() && row.sums() == Sums::kShort) p.layout[kVOffset] = {FA3_F32, 0, 0, 256};
  const fa3_dtype qk = !c.types.scaled() ? FA3_BF16 : c.types.v8() ? FA3_F8_E4M3 : FA3_I8;
  for (const TensorId id : {kQ, kK}) p.layout[id] = {qk, 0, c.tile.head_dim_qk, 16};
  p.layout[kV] = {c.types.v8() ? FA3_F8_E4M3 : FA3_BF16, 0, c.tile.head_dim_v, 16};
  p.layout[kO] = {FA3_BF16, 0, row.config.tile.head_dim_v, 16};
  return p;
}

FwdPlan plan_of(const Problem& p) {
  DeviceInfo gpu;
  gpu.type = FA3_DEVICE_CUDA;
  gpu.backend = FA3_BACKEND_CUDA;
  gpu.multiprocessors = 132;
  const Result<FwdPlan> plan = make_fwd_plan(p, gpu);
  if (!plan.ok()) throw std::runtime_error(plan.status().message);
  return plan.value();
}

FwdConfig config_of(const FwdRow& row, const Problem& p) {
  const FwdPlan plan = plan_of(p);
  EXPECT_STREQ(plan.row, row.name);
  return plan.config;
}

// Kernels that are compiled together.
struct Batch {
  std::string name;
  std::vector<FwdConfig> configs;
  FwdFunctors functors{};
};
void PrintTo(const Batch& batch, std::ostream* out) { *out << batch.name; }

// Compiling takes a sixth of the tests' time though `make test` compiles a third of every fourth
// row's variants, of 8 bits a sixth; `make ci` compiles the others, of 8 bits every second one. Who
// writes the golden file compiles all.
bool every_variant() { return std::getenv("FA3_UPDATE_GOLDEN") != nullptr; }

Batch batch_of(const FwdRow& row) {
  Batch batch{row.name, {}};
  std::replace(batch.name.begin(), batch.name.end(), ' ', '_');
  for (const fa3_mask mask : {FA3_MASK_FULL, FA3_MASK_CAUSAL, FA3_MASK_WINDOW}) {
    for (const bool ragged : {false, true}) {
      Problem p = problem(row, mask, ragged);
      // INT8 Q and K beside E4M3 V: where keys have lengths.
      if (row.config.types.v8() && ragged) p.layout[kQ].dtype = p.layout[kK].dtype = FA3_I8;
      const FwdPlan plan = plan_of(p);
      if (plan.row != std::string(row.name)) continue;
      batch.configs.push_back(plan.config);
    }
  }
  if (batch.configs.empty()) throw std::runtime_error(batch.name + " is never chosen");
  if (every_variant()) return batch;
  const size_t all = batch.configs.size(), index = &row - kFwdRows;
  const size_t step = row.config.types.scaled() ? 6 : 3, first = index % std::min(all, step);
  std::vector<FwdConfig> chosen;
  for (size_t i = 0; i < all; ++i) {
    const bool soon = i % step == first && index % 4 == 0;
    if (soon || !row.config.types.scaled() || i % 2 == index % 2 || i == first)
      if (soon != kit::thorough()) chosen.push_back(batch.configs[i]);
  }
  batch.configs = std::move(chosen);
  return batch;
}

const FwdRow& row_named(const std::string& name) {
  for (const FwdRow& row : kFwdRows) {
    if (row.name == name) return row;
  }
  throw std::runtime_error("no row " + name);
}

// What a problem may change apart from the mask, on one row.
Batch variants() {
  const FwdRow& row = row_named("d128");
  Problem f16 = problem(row, FA3_MASK_CAUSAL, false), softcap = f16, scaled = f16, o_f32 = f16,
          chunk = f16, max_logit = f16;
  for (const TensorId id : {kQ, kK, kV, kO}) f16.layout[id].dtype = FA3_F16;
  softcap.softcap = 20;
  scaled.softmax_scale = -0.1;
  o_f32.layout[kO].dtype = FA3_F32;
  chunk.attention_chunk = 100;
  max_logit.layout[kMaxLogit] = {FA3_F32, 0, 0, 1};
  Batch batch{"variants", {}};
  for (const Problem& p : {f16, softcap, scaled, o_f32, chunk, max_logit})
    batch.configs.push_back(config_of(row, p));
  return batch;
}

// What no row has and the ablation measures (docs/tuning/ablation.md), for d 128.
FwdConfig serial() {
  FwdConfig c = row_named("d128").config;
  c.overlap.step = FwdStep::kSerial;
  return c;
}
FwdConfig three_stages() {
  FwdConfig c = row_named("d128").config;
  c.overlap.step = FwdStep::kThreeStage;
  c.tile.kv = 80;  // what fits next to a second S
  return c;
}
FwdConfig unspecialised() {
  FwdConfig c = row_named("d128").config;
  c.overlap.specialised = false;
  c.overlap.schedule = FwdSchedule::kOneTile;
  return c;
}

// Functors on the rows that leave the fewest registers.
Batch functors(const char* name, const FwdFunctors& functors,
               const std::vector<const char*>& rows) {
  Batch batch{name, {}, functors};
  for (const char* const row : rows) {
    Problem p = problem(row_named(row), FA3_MASK_WINDOW, false);
    if (functors.alibi) p.layout[kAlibiSlopes] = {FA3_F32, 0, 0, 1};
    if (functors.sequence_ids)
      p.layout[kSequenceIdsQ] = p.layout[kSequenceIdsKv] = {FA3_I32, 1 << 20, 1, 0};
    const FwdPlan plan = plan_of(p);
    EXPECT_EQ(plan.functors, functors);
    batch.configs.push_back(plan.config);
  }
  if (!every_variant()) batch.configs.erase(batch.configs.begin(), batch.configs.end() - 1);
  return batch;
}

// Scales of blocks of K and V.
Batch block_scales() {
  Batch batch{"block_scales", {}};
  for (const char* const name :
       {"d128 8bit flushed", "d64 8bit flushed two", "d256 8bit flushed", "d128 8bit qk two"}) {
    const FwdRow& row = row_named(name);
    Problem p = problem(row, FA3_MASK_FULL, false);
    p.scale_block[kK].rows = 128;
    if (row.config.types.v8()) p.scale_block[kV].rows = 64;
    batch.configs.push_back(config_of(row, p));
    p.scale_block[kK].rows = 1;
    if (row.config.tile.head_dim_qk == 128) batch.configs.push_back(config_of(row, p));
  }
  if (!every_variant()) batch.configs.resize(3);
  return batch;
}

// Scales that change along head_dim, with those of blocks of K and V, and key by key.
Batch column_scales() {
  Batch batch{"column_scales", {}};
  for (const char* const name : {"d256 8bit flushed", "d128 8bit flushed", "d128 8bit qk two"}) {
    const FwdRow& row = row_named(name);
    Problem p = problem(row, FA3_MASK_FULL, false);
    for (const TensorId id : {kQ, kK, kV})
      if (id != kV || row.config.types.v8()) p.scale_block[id].cols = 64;
    batch.configs.push_back(config_of(row, p));
    p.scale_block[kQ].rows = p.scale_block[kK].rows = 1;
    if (row.config.types.v8()) p.scale_block[kV].rows = 1;
    batch.configs.push_back(config_of(row, p));
  }
  if (!every_variant()) batch.configs.resize(3);
  return batch;
}

std::vector<Batch> batches() {
  std::vector<Batch> all;
  for (const FwdRow& row : kFwdRows) all.push_back(batch_of(row));
  all.push_back(functors("alibi", {true, false}, {"d64", "d128"}));
  all.push_back(functors("sequence_ids", {false, true}, {"d64", "d128"}));
  all.push_back(functors("alibi_and_sequence_ids", {true, true}, {"d64", "d128", "d256"}));
  all.push_back(variants());
  all.push_back(block_scales());
  all.push_back(column_scales());
  all.push_back({"serial", {serial()}});
  all.push_back({"three_stages", {three_stages()}});
  all.push_back({"unspecialised", {unspecialised()}});
  if (kit::thorough())  // of `make test`, all of them
    for (size_t i = std::size(kFwdRows); i < all.size(); ++i) all[i].configs.clear();
  return all;
}

// Loops: under the mask, unmasked, under the mask's left edge.
size_t loops_of(const FwdConfig& c, const FwdFunctors& functors) {
  if (functors.sequence_ids) return 3;
  if (has_left_edge(c.mask.kind)) return 3;
  // One GEMM after the other: the first tile, with the keys beyond the sequence, is in a loop, too.
  const bool serial = c.overlap.step == FwdStep::kSerial || c.scores.column_scales();
  return c.mask.kind == MaskKind::kCausal || serial ? 2 : 1;
}

// Where scales change along head_dim: the GEMMs of all parts, each waited for.
void expect_parts(const FwdConfig& c, const std::vector<kit::Instruction>& loop) {
  size_t ss = 0, rs = 0, waits = 0;
  for (const kit::Instruction& instruction : loop) {
    if (instruction.is_wgmma()) ++(instruction.is_wgmma_rs() ? rs : ss);
    waits += instruction.is_wgmma_wait();
  }
  const auto parts = static_cast<size_t>(c.pv_parts());
  EXPECT_EQ(ss, static_cast<size_t>(c.tile.head_dim_qk / c.types.qk_step()));
  EXPECT_EQ(rs, parts * static_cast<size_t>(c.tile.kv / c.types.pv_step()));
  EXPECT_EQ(waits, static_cast<size_t>(c.tile.head_dim_qk / c.scores.scale_columns) + parts);
}

// Q·Kᵀ with both operands in shared memory, then P·V with P in registers. Returns how many
// instructions after Q·Kᵀ is complete K is released.
size_t expect_order(const FwdConfig& c, const std::vector<kit::Instruction>& loop) {
  const size_t steps = c.overlap.step == FwdStep::kThreeStage ? 2 : 1;  // S changes places
  const size_t waits_of_step = c.overlap.step == FwdStep::kThreeStage ? 1 : 2;
  size_t ss = 0, rs = 0;
  int moves = 0;
  std::vector<size_t> fences, waits, arrivals;
  size_t late_mufu = 0;
  bool begun = false;
  for (size_t i = 0; i < loop.size(); ++i) {
    const kit::Instruction& instruction = loop[i];
    if (instruction.is_wgmma_fence()) fences.push_back(i), begun = false;
    if (instruction.is_wgmma_wait()) waits.push_back(i);
    if (instruction.is_wgmma()) {
      // Without specialisation ptxas has no uniform registers behind the branch of one thread.
      if (c.overlap.specialised) {
        EXPECT_EQ(begun ? moves : 0, 0) << "a descriptor is not built in uniform registers";
      }
      begun = true;
      moves = 0;
      ++(instruction.is_wgmma_rs() ? rs : ss);
    }
    moves += instruction.opcode() == kit::kRegToUniform;
    if (instruction.opcode() == kit::kArrive && waits.size() == 1) arrivals.push_back(i);
    late_mufu += instruction.opcode() == kit::kMufu && waits.size() >= steps * waits_of_step;
  }
  EXPECT_EQ(ss, steps * static_cast<size_t>(c.tile.head_dim_qk / c.types.qk_step()));
  // P·V in parts: all but the first are issued and waited for one after the other.
  const auto parts = static_cast<size_t>(c.pv_parts());
  EXPECT_EQ(rs, steps * parts * static_cast<size_t>(c.tile.kv / c.types.pv_step()));
  EXPECT_EQ(fences.size(), (1 + parts) * steps);
  EXPECT_EQ(waits.size(), steps * (waits_of_step + parts - 1));
  if (!sinks_exponentials(c)) {
    EXPECT_LE(late_mufu, kLateMufu * static_cast<size_t>(std::max(c.tile.kv, 128)) / 128)
        << "exponentials stand behind the GEMM that they should overlap";
  }
  EXPECT_FALSE(arrivals.empty()) << "K is released behind the second wait";
  return arrivals.empty() ? loop.size() : arrivals[0] - waits[0];
}

// after: of every loop. The one without a mask is the fastest.
void expect_early_release(const FwdConfig& c, const std::vector<size_t>& after) {
  const auto more = static_cast<size_t>(kArrivePerKey * c.tile.kv);
  const bool simple = c.scores.kind == ScoreKind::kPlain;
  const size_t converts = is_int8(c.types.qk) ? static_cast<size_t>(c.tile.kv / 2) : 0;
  const size_t plain =
      kArriveWithin + (simple ? 0 : more) + (c.types.scaled() ? kArriveScaled + converts : 0);
  EXPECT_LE(*std::min_element(after.begin(), after.end()), plain) << "K is released late";
  EXPECT_LE(*std::max_element(after.begin(), after.end()), plain + more) << "K is released late";
}

// The roofline knows the loops' instructions by a formula, this exactly: ptxas 13.0 puts up to 24
// more of 286 into those of head dim 256, and hits it within 5 % elsewhere, with INT8 within 15 %.
constexpr double kLoopLength = 0.1, kLoopLengthInt8 = 0.15;

void expect_length(const FwdConfig& c, const std::vector<kit::Loop>& loops) {
  if (c.overlap.ablation()) return;
  for (size_t i = 0; i < loops.size(); ++i) {
    const bool masked = loops.size() > 1 && i != 1;  // the second is the unmasked one
    const double length = static_cast<double>(loops[i].end - loops[i].begin);
    const double often = step_instructions(c, masked);
    const double tolerance = is_int8(c.types.qk) ? kLoopLengthInt8 : kLoopLength;
    EXPECT_NEAR(length - rare_instructions(c), often, tolerance * often)
        << "loop " << i << ": correct step_instructions() in plan/sm90/roofline.cpp";
  }
}

// ---- Instruction streams ------------------------------------------------------------------------

// tests/golden/instructions.csv: of each kernel its number of instructions and their SHA-256, by
// row and variant, after a line that names their NVRTC. A change that is meant to
// keep the kernels changes no line; a change of a line has been measured on a GPU.
constexpr const char* kInstructions = FA3_GOLDEN_DIR "/instructions.csv";

std::string name_of(const Batch& batch, const FwdConfig& c) {
  const bool several = batch.functors.any() || c.scores.block_scales();
  const std::string dims = several ? fmt::format("/d{}", c.tile.head_dim_qk) : "";
  const char* const qk =
      is_int8(c.types.qk) && (c.types.v8() || c.scores.block_scales()) ? "/i8" : "";
  std::string more = c.scores.block_scales() ? fmt::format("/{}", word(c.scores.kv_scales)) : "";
  if (c.scores.column_scales()) more += fmt::format("/columns{}", c.scores.scale_columns);
  if (c.output.f32) more += "/o_f32";
  if (c.output.max_logit) more += "/max_logit";
  return fmt::format("{}{}{}{}/{}/{}/{}/{}", batch.name, dims, qk, more, word(c.types.o),
                     word(c.mask.kind), c.load.ragged ? "varlen" : "dense", word(c.scores.kind));
}

std::map<std::string, std::string> read_instructions() {
  std::map<std::string, std::string> lines;  // by the text before the first comma
  std::ifstream file(kInstructions);
  for (std::string line; std::getline(file, line);) {
    const size_t comma = std::min(line.find(','), line.size());
    lines[line.substr(0, comma)] = line.substr(comma);
  }
  return lines;
}

// With FA3_UPDATE_GOLDEN set, the file is brought up to date instead.
void expect_instructions(const std::map<std::string, std::string>& now) {
  const std::string build = "," + kit::nvrtc_build();
  std::map<std::string, std::string> golden = read_instructions();
  if (std::getenv("FA3_UPDATE_GOLDEN") != nullptr) {
    for (const auto& [name, line] : now) golden[name] = line;
    golden["nvrtc"] = build;
    std::ofstream file(kInstructions);
    for (const auto& [name, line] : golden) file << name << line << '\n';
    return;
  }
  if (golden["nvrtc"] != build) {  // all else has been checked: not a skipped test
    fmt::print("not compared: NVRTC is{}, the instructions in {} are of{}\n", build, kInstructions,
               golden["nvrtc"]);
    return;
  }
  for (const auto& [name, line] : now) {
    EXPECT_EQ(line, golden[name])
        << name << " is another kernel now: measure it on a GPU, then, in the build folder,\n"
        << "FA3_UPDATE_GOLDEN=1 bin/fa3_compile_tests --gtest_filter='*FwdPrograms*'";
  }
}

class FwdPrograms : public testing::TestWithParam<Batch> {};

TEST_P(FwdPrograms, CompileAsMeant) {
  const Batch& batch = GetParam();
  if (batch.configs.empty()) GTEST_SKIP() << (kit::thorough() ? "of make test" : "of make ci");
  std::vector<std::string> expressions;
  for (const FwdConfig& c : batch.configs) expressions.push_back(fwd_expression(c, batch.functors));
  const kit::Translation all =
      kit::translate(fmt::format("#include \"{}\"\n", fwd_header(batch.configs[0])), expressions);
  EXPECT_THAT(all.log, Not(HasSubstr("(C75")));
  EXPECT_THAT(all.log, Not(HasSubstr("warning")));
  const std::regex stack(R"(\d+ bytes stack frame, \d+ bytes spill stores, \d+ bytes spill loads)");
  size_t kernels = 0;
  // The scheduler spills where consumers leave it 24 registers: once a Q tile.
  const bool may_spill = batch.configs[0].producer_registers() < 32;
  for (std::sregex_iterator i(all.log.begin(), all.log.end(), stack), end; i != end; ++i) {
    if (!may_spill) {
      EXPECT_EQ(i->str(), "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads");
    }
    ++kernels;
  }
  EXPECT_EQ(kernels, expressions.size()) << "a function stayed a call";
  ASSERT_EQ(all.symbols.size(), expressions.size());
  std::map<std::string, std::string> instructions;
  for (size_t i = 0; i < batch.configs.size(); ++i) {
    SCOPED_TRACE(expressions[i]);
    const kit::Code code(all.cubin, all.symbols[i]);
    instructions[name_of(batch, batch.configs[i])] =
        fmt::format(",{},{}", code.instructions().size(), code.sha256());
    if (!may_spill) {
      EXPECT_EQ(code.count(kit::kLoadLocal), 0u);
      EXPECT_EQ(code.count(kit::kStoreLocal), 0u);
    }
    const std::vector<kit::Loop> loops = code.inner_wgmma_loops();
    ASSERT_EQ(loops.size(), loops_of(batch.configs[i], batch.functors));
    std::vector<size_t> releases;
    for (const kit::Loop& loop : loops) {
      SCOPED_TRACE("loop at instruction " + std::to_string(loop.begin));
      if (batch.configs[i].scores.column_scales()) {
        expect_parts(batch.configs[i], code.in(loop));
      } else {
        releases.push_back(expect_order(batch.configs[i], code.in(loop)));
      }
      size_t spills = 0;
      for (const kit::Instruction& instruction : code.in(loop)) {
        spills += instruction.opcode() == kit::kLoadLocal;
        spills += instruction.opcode() == kit::kStoreLocal;
      }
      EXPECT_LE(spills, most_spills(batch.configs[i]));
    }
    // ptxas moves their work freely.
    if (batch.functors.any() || batch.configs[i].scores.kv_scales == KvScales::kKeys) continue;
    if (batch.configs[i].scores.column_scales()) continue;
    expect_early_release(batch.configs[i], releases);
    expect_length(batch.configs[i], loops);
  }
  EXPECT_EQ(instructions.size(), batch.configs.size()) << "two kernels have the same name";
  expect_instructions(instructions);
}

// The kernel that transposes V for a row, of all rows together.
TEST(VImagePrograms, CompileWithoutSpills) {
  std::vector<std::string> expressions;
  for (const FwdRow& row : kFwdRows) {
    if (!row.config.load.v_image) continue;
    for (const bool ragged : {false, true})
      expressions.push_back(v_image_expression({row.config.turned_v(), ragged}));
  }
  const kit::Translation all =
      kit::translate("#include \"device/sm90/fwd/v_image.cuh\"\n", expressions);
  EXPECT_THAT(all.log, Not(HasSubstr("warning")));
  for (const std::string& symbol : all.symbols) {
    const kit::Code code(all.cubin, symbol);
    EXPECT_EQ(code.count(kit::kLoadLocal) + code.count(kit::kStoreLocal), 0u) << symbol;
    EXPECT_GT(code.count(kit::kStoreMatrix), 0u) << symbol;
  }
}

// A row that is gone leaves no line behind.
TEST(FwdInstructions, EachLineIsOfABatch) {
  std::set<std::string> names{"nvrtc"};
  for (const Batch& batch : batches()) names.insert(batch.name);
  for (const auto& [name, line] : read_instructions())
    EXPECT_EQ(names.count(name.substr(0, name.find('/'))), 1u) << name << ": delete its line";
}

INSTANTIATE_TEST_SUITE_P(Rows, FwdPrograms, testing::ValuesIn(batches()),
                         [](const auto& batch) { return batch.param.name; });

// One configuration serves every sequence length: nothing of a problem's sizes is compiled in.
TEST(FwdExpressions, SizesOfProblems_DoNotMatter) {
  const FwdRow& row = row_named("d128");
  Problem p = problem(row, FA3_MASK_CAUSAL, false);
  const std::string before = fwd_expression(config_of(row, p));
  p.q.rows = p.kv.rows = 333;
  p.softmax_scale = 0.7;
  EXPECT_EQ(fwd_expression(config_of(row, p)), before);
}

}  // namespace
}  // namespace fa3::sm90
