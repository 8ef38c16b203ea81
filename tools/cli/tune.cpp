// SPDX-License-Identifier: BSD-3-Clause
// tune.cpp — `fa3 tune`: which row of the GPU kernel's table is the fastest for a user's problems.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cases.h"
#include "commands.h"
#include "device_text.h"
#include "error.h"
#include "json_text.h"
#include "output.h"
#include "problem.h"
#include "session.h"
#include "tensor_file/staged_file.h"
#include "tools/measure/turns.h"
#include "tools/verify/check.h"
#include "work.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kVariable = "FA3_TUNING";

struct TuneOptions {
  ProblemOptions problem;
  std::vector<std::string> cases;
  std::string only;
  std::string output;
  int64_t rounds = 11, slice_ms = 14, warm_ms = 2000;
  bool json = false, quiet = false;
};

// ---- The file -----------------------------------------------------------------------------------

Json file_of(const std::string& gpu, Json problems) {
  return {{"fa3_tuning", 1}, {"fa3", fa3_version()}, {"gpu", gpu}, {"problems", problems}};
}

// What a file has already, of this version and GPU.
Json problems_in(const std::string& path, const std::string& gpu) {
  std::ifstream in(path);
  if (!in) return Json::array();
  constexpr int kDepth =
      8;  // more than such a file has; deeper ones would take as deep a recursion
  bool shallow = true;
  const auto follow = [&](int depth, Json::parse_event_t, const Json&) {
    shallow = shallow && depth <= kDepth;
    return shallow;
  };
  const Json file = Json::parse(in, follow, false);
  if (!shallow || !file.is_object() || !file.contains("fa3_tuning"))
    fail(kBadInput, "--output: {} exists and is no tuning file; name another", path);
  const Json problems = file.value("problems", Json::array());
  const bool objects =
      problems.is_array() &&
      std::all_of(problems.begin(), problems.end(), [](const Json& x) { return x.is_object(); });
  if (!objects)
    fail(kBadInput,
         "--output: {} is a tuning file whose problems are no list of objects; name "
         "another",
         path);
  const bool ours = file.value("fa3", "") == fa3_version() && file.value("gpu", "") == gpu;
  return ours ? problems : Json::array();
}

void replace_problem(Json& problems, const Json& entry) {
  for (Json& other : problems) {
    if (other.value("problem", "") != entry["problem"]) continue;
    other = entry;
    return;
  }
  problems.push_back(entry);
}

// FA3_TUNING for the contexts that are opened while this lives: one problem and its row.
class TuningOfOne {
 public:
  TuningOfOne(const std::filesystem::path& folder, const std::string& gpu, const std::string& key,
              const std::string& row) {
    const std::filesystem::path path = folder / "tuning.json";
    std::ofstream(path) << file_of(gpu, {{{"problem", key}, {"row", row}}});
    ::setenv(kVariable, path.c_str(), 1);
  }
  ~TuningOfOne() { ::unsetenv(kVariable); }
  TuningOfOne(const TuningOfOne&) = delete;
  TuningOfOne& operator=(const TuningOfOne&) = delete;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;
    std::string name = (tools::temporary_folder(error) / "fa3-tune-XXXXXX").string();
    if (error || ::mkdtemp(name.data()) == nullptr)
      fail(kFailed, "{}: cannot be made; name a folder that can be written to in TMPDIR", name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// ---- Measuring ----------------------------------------------------------------------------------

// A row that can compute a problem, planned and compiled; the first is the rule's choice.
struct Candidate {
  std::string row;
  std::unique_ptr<Session> session;
  Prepared plan;
};

struct Found {
  std::string key;
  double flops = 0;
  std::vector<Candidate> rows;
  std::vector<measure::Turns> turns;  // of each
  size_t best = 0;                    // 0: no row is faster in four fifths of the rounds
};

struct Explained {
  std::string row, from, key;
  std::vector<std::string> others;
};
Explained explained(Session& session, const fa3_forward_args& args) {
  const Json plan = Json::parse(session.explain(args)).at("sm90");
  Explained e{plan.at("row"), plan.at("row_from"), plan.at("tuning_key"), {}};
  for (const auto& [row, why] : plan.at("rows_rejected").items()) e.others.push_back(row);
  return e;
}

std::unique_ptr<Session> open_session(const TuneOptions& o) {
  return std::make_unique<Session>("cuda", 0, !o.quiet);
}

Found tune(const TuneOptions& o, const Case& c, const std::filesystem::path& folder) {
  std::unique_ptr<Session> rule = open_session(o);
  const std::string gpu = rule->device().name;
  require_memory(c.config, rule->device().memory_bytes);
  verify::Config config = verify::aligned(c.config, FA3_BACKEND_CUDA);
  config.alignment = 256;  // as cuMemAlloc gives it
  const verify::Tensors tensors = verify::make_tensors(config);
  const fa3_forward_args args = verify::forward_args(config, tensors);

  const Explained by_rule = explained(*rule, args);
  Found found;
  found.key = by_rule.key;
  found.flops = forward_flops(args);
  Prepared first = rule->prepare(args);
  rule->upload(first, args);
  found.rows.push_back({by_rule.row, std::move(rule), std::move(first)});
  for (const std::string& row : by_rule.others) {
    const TuningOfOne tuning(folder, gpu, by_rule.key, row);
    std::unique_ptr<Session> session = open_session(o);
    if (explained(*session, args).from != "file") continue;
    Prepared plan = session->prepare(args);
    plan.device = found.rows[0].plan.device;
    found.rows.push_back({row, std::move(session), std::move(plan)});
  }
  const auto run = [&](size_t v, int times) {
    const Candidate& of = found.rows[v];
    return 1e3 * times * of.session->run(of.plan, args, c.name.c_str(), times);
  };
  const measure::TurnOptions turns{static_cast<int>(o.rounds), static_cast<double>(o.slice_ms),
                                   static_cast<double>(o.warm_ms)};
  found.turns =
      measure::in_turns(found.rows.size(), run, measure::Nvml(measure::bus_id_of(0)), turns);
  for (size_t v = 1; v < found.rows.size(); ++v) {
    const measure::Turns& t = found.turns[v];
    if (t.verdict() > 0 && t.ratio > found.turns[found.best].ratio) found.best = v;
  }
  return found;
}

// ---- Reporting ----------------------------------------------------------------------------------

double tflops(const Found& found, size_t row) { return found.flops / found.turns[row].ms * 1e-9; }

Json to_json(const Case& c, const Found& found) {
  Json rows = Json::array();
  for (size_t v = 0; v < found.rows.size(); ++v) {
    const measure::Turns& t = found.turns[v];
    rows.push_back({{"row", found.rows[v].row},
                    {"ms", t.ms},
                    {"tflops", tflops(found, v)},
                    {"ratio", t.ratio},
                    {"ratio_low", t.ratio_low},
                    {"ratio_high", t.ratio_high}});
  }
  return {{"name", c.name},
          {"problem", found.key},
          {"row", found.rows[found.best].row},
          {"rule", found.rows[0].row},
          {"rows", rows}};
}

std::string table_of(const Case& c, const Found& found) {
  std::string text = fmt::format("\n{}: {}\n\n{:<20} {:>8}  {:>8}  {}\n", c.name, found.key, "row",
                                 "TFLOP/s", "to rule", "four fifths of the rounds");
  for (size_t v = 0; v < found.rows.size(); ++v) {
    const measure::Turns& t = found.turns[v];
    const char* const note = v == found.best ? (v == 0 ? "  rule, used" : "  used")
                             : v == 0        ? "  rule"
                                             : "";
    text += fmt::format("{:<20} {:>8.1f}  {:>8.3f}  {:.3f} to {:.3f}{}\n", found.rows[v].row,
                        tflops(found, v), t.ratio, t.ratio_low, t.ratio_high, note);
  }
  return text;
}

std::vector<Case> collect(const TuneOptions& o) {
  std::vector<Case> cases;
  for (const std::string& path : o.cases) read_cases(path, cases);
  if (o.cases.empty()) {
    ProblemOptions problem = o.problem;
    if (!problem.dtype) problem.dtype = "bf16";  // GPU kernels take no F32
    const verify::Config config = make_config(problem);
    if (const std::string why = verify::contradiction(config); !why.empty())
      fail(kUsage, "{}", why);
    cases.push_back({"problem", config});
  }
  std::erase_if(cases, [&](const Case& c) { return c.name.find(o.only) == std::string::npos; });
  if (cases.empty()) fail(kBadInput, "--only: no case has '{}' in its name", o.only);
  for (const Case& c : cases)
    if (c.config.backward) fail(kUsage, "{}: a backward, which has no kernel to tune yet", c.name);
  return cases;
}

int tune_all(const TuneOptions& o) {
  ::unsetenv(kVariable);  // the rule is what rows are compared with
  const std::vector<Case> cases = collect(o);
  const std::unique_ptr<Session> session = open_session(o);
  const std::string gpu = session->device().name;
  for (const Case& c : cases) session->require_supported(shapes_forward(c.config));
  Json problems = o.output.empty() ? Json::array() : problems_in(o.output, gpu);
  std::optional<tools::StagedFile> file;
  if (!o.output.empty()) file.emplace(o.output, "--output: ");
  const TemporaryFolder folder;
  if (!o.json && !o.quiet) {
    print_text(
        fmt::format("{}; {} rounds in turns after {} ms under load\n", gpu, o.rounds, o.warm_ms));
    flush();
  }
  for (const Case& c : cases) {
    const Found found = tune(o, c, folder.path());
    const Json entry = to_json(c, found);
    if (o.json)
      print(dump(entry) + "\n");
    else if (!o.quiet)
      print_text(table_of(c, found));
    flush();
    replace_problem(problems, entry);
  }
  if (!file) return kDone;
  const std::string text = dump(file_of(gpu, problems), 1) + "\n";
  tools::write_all(file->descriptor(), o.output, text.data(), text.size());
  const std::string report =
      o.json || o.quiet
          ? ""
          : as_shown(fmt::format("\nwrote {}; to use it: {}={}\n", o.output, kVariable,
                                 std::filesystem::absolute(o.output).string()));
  file->commit();
  print(report);
  return kDone;
}

}  // namespace

Action add_tune(Parser& parser) {
  auto o = std::make_shared<TuneOptions>();
  add_problem_options(parser, o->problem);
  parser.group("Measurement");
  parser.texts("--cases", o->cases, "FILE.json",
               "JSON file of problems, as `fa3 bench` takes it, instead of the options above; "
               "repeatable");
  parser.text("--only", o->only, "TEXT", "Only cases with this text in their name");
  parser.whole("--rounds", o->rounds, "Turns of each problem", 3);
  parser.whole("--slice", o->slice_ms, "Milliseconds of a row in a round", 1);
  parser.whole("--warm", o->warm_ms, "Milliseconds under load before the first round");
  parser.text("-o,--output", o->output, "FILE.json",
              "Write what is best there, beside what the file has of other problems");
  parser.flag("--json", o->json, "Print JSON on stdout instead of text: an object a problem");
  parser.flag("--quiet", o->quiet, "Print nothing but errors; no progress bar");
  return [o, parser] {
    if (!o->cases.empty()) refuse_beside_cases(parser);
    return tune_all(*o);
  };
}

}  // namespace fa3::cli
