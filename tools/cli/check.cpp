// SPDX-License-Identifier: BSD-3-Clause
// check.cpp — `fa3 check`: is a backend as exact as it should be?
#include "tools/verify/check.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "combine_problem.h"
#include "commands.h"
#include "device_text.h"
#include "error.h"
#include "expectation.h"
#include "file_problem.h"
#include "json_text.h"
#include "output.h"
#include "problem.h"
#include "session.h"
#include "tools/verify/fields.h"
#include "violation.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kGeneratedGroup = "Generated problem";
constexpr const char* kFileGroup = "File";

struct CheckOptions {
  FileOptions file;  // path "" = a generated problem
  ProblemOptions problem;
  SessionOptions session;
  std::string combine;  // the parts that are merged, "" = attention
  std::string layout;
  int64_t spare_q = 0, spare_kv = 0;
  std::string seqused_q, seqused_kv;
  bool own_pages = false;
  bool scattered_ids = false;
  bool no_lse = false, dlse = false;
  double magnitude = 1;
  int64_t alignment = 0;
  int64_t seed = 0;
  std::optional<int64_t> schedule_seed;
  std::string expect;
  double tolerance = 0;  // 0 = by the output's type
};

struct Verdict {
  bool ok = true;
  std::vector<verify::OutputResult> outputs;
  std::optional<Expectation> expectation;
  std::string problem;  // one line
  std::string error;    // what else went wrong, e.g. guard bytes that changed
  std::string replay;
};

bool all_ok(const std::vector<verify::OutputResult>& outputs) {
  return std::all_of(outputs.begin(), outputs.end(), [](const auto& r) { return r.ok; });
}

template <class Args>
void fill_outputs(const Args& args) {
  verify::for_each_tensor(args, [](const fa3_field& f, const fa3_tensor& t) {
    if (verify::is_output(f) && t.rank > 0) verify::fill(t, std::nan(""));
  });
}

Verdict check_file(const CheckOptions& o, Session& session) {
  check_gradients(o.problem.gradients, o.problem.backward);
  const tools::TensorFile file = open_file(o.file);
  FileOptions options = o.file;
  options.dtype = o.problem.dtype.value_or("file");
  if (options.dtype != "file" && verify::is_8_bit(dtype_value(options.dtype)))
    fail(kUsage, "--dtype: got {}, need f32, f16 or bf16 for a file: nothing is cast to 8 bits",
         options.dtype);
  if (o.problem.v_dtype)
    fail(kUsage, "--v-dtype: is for generated problems; leave it or the file out");
  options.scales = o.problem.scales;
  options.gradients = o.problem.gradients;
  options.out_dtype = options.grad_dtype = o.problem.out_dtype;
  if (!o.layout.empty()) options.layout = o.layout;
  if (options.layout != "bshd" && options.layout != "bhsd")
    fail(kUsage, "--layout: got '{}', need bshd or bhsd for a file", options.layout);
  const FileProblem problem = load_problem(file, options, o.problem.score, o.problem.backward);
  const fa3_forward_args forward = problem.forward_args();
  const fa3_backward_args backward = problem.backward_args();
  std::vector<Question> problems{forward};
  if (o.problem.backward) problems.push_back(backward);
  session.prefer_gpu(problems);
  Prepared plan = session.prepare(forward);
  fill_outputs(forward);
  session.upload(plan, forward);
  session.run(plan, forward, "forward");
  session.download(plan);
  Verdict v;
  v.problem = fmt::format("{}: q {}, {}", o.file.path, tensor_text(problem.at("q")),
                          mask_text(problem.mask));
  v.outputs = verify::compare_forward(forward);
  if (o.problem.backward) {
    Prepared backward_plan = session.prepare(backward);
    fill_outputs(backward);
    session.upload(backward_plan, backward);
    session.run(backward_plan, backward, "backward");
    session.download(backward_plan);
    for (verify::OutputResult& r : verify::compare_backward(backward))
      v.outputs.push_back(std::move(r));
  }
  v.ok = all_ok(v.outputs);
  if (!o.expect.empty()) {
    const HostTensor expected = load(file, o.expect, FA3_F32);
    const double tolerance = o.tolerance > 0 ? o.tolerance : default_tolerance(forward.o.dtype);
    v.expectation =
        compare_expected(forward.o, expected.view(problem.heads_first), o.expect, tolerance);
    v.ok = v.ok && v.expectation->ok;
  }
  return v;
}

constexpr verify::Layout kLayouts[] = {verify::Layout::kDense,       verify::Layout::kHeadsFirst,
                                       verify::Layout::kSeqFirst,    verify::Layout::kPadded,
                                       verify::Layout::kInterleaved, verify::Layout::kBroadcast};

verify::Layout layout_value(const std::string& name) {
  for (const verify::Layout layout : kLayouts)
    if (name == verify::layout_name(layout)) return layout;
  fail(kUsage,
       "--layout: got '{}', need dense, heads_first, seq_first, padded, interleaved or broadcast "
       "for a generated problem",
       name);
}

verify::Config generated_config(const CheckOptions& o) {
  verify::Config c = make_config(o.problem);
  if (o.spare_q > 0 && c.varlen_q.empty())
    fail(kUsage, "--spare-q: is for varlen tensors; give --varlen-q or leave it out");
  if (o.spare_kv > 0 && c.varlen_kv.empty())
    fail(kUsage, "--spare-kv: is for varlen tensors; give --varlen-kv or leave it out");
  c.spare_q = o.spare_q;
  c.spare_kv = o.spare_kv;
  if (!o.seqused_q.empty()) c.seqused_q = parse_integers("--seqused-q", o.seqused_q);
  if (!o.seqused_kv.empty()) c.seqused_kv = parse_integers("--seqused-kv", o.seqused_kv);
  if (o.dlse && !c.backward)
    fail(kUsage, "--dlse: a forward has no gradients; add --backward or leave it out");
  if (o.no_lse && c.backward)
    fail(kUsage, "--no-lse: a backward needs LSE; leave it or --backward out");
  c.own_pages = o.own_pages;
  c.scattered_ids = o.scattered_ids;
  c.lse = !o.no_lse;
  c.dlse = o.dlse;
  if (!(std::isfinite(o.magnitude) && o.magnitude >= 0))
    fail(kUsage, "--magnitude: got {}, need a finite number from 0", o.magnitude);
  c.magnitude = o.magnitude;
  c.alignment = o.alignment;
  if (!o.layout.empty()) c.layout = layout_value(o.layout);
  c.seed = static_cast<uint64_t>(o.seed);
  if (const std::string why = verify::contradiction(c); !why.empty())
    fail(kUsage, "the options contradict each other: {}", why);
  return c;
}

verify::CombineProblem combine_problem(const CheckOptions& o) {
  return make_combine_problem(o.problem,
                              {o.combine, o.layout, !o.no_lse, o.magnitude, o.alignment, o.seed});
}

// The command that repeats a generated problem, in the same schedule.
std::string replay_text(const CheckOptions& o) {
  const std::string& backend = o.session.backend;
  const std::string command = o.combine.empty()
                                  ? verify::replay_command(generated_config(o), backend)
                                  : replay_command(combine_problem(o), o.layout, backend);
  return o.schedule_seed ? fmt::format("{} --schedule-seed {}", command, *o.schedule_seed)
                         : command;
}

Verdict check_generated(const CheckOptions& o, Session& session) {
  const verify::Config config = generated_config(o);
  const fa3_forward_args forward = shapes_forward(config);
  const fa3_backward_args backward = shapes_backward(config);
  std::vector<Question> problems{forward};
  if (config.backward) problems.push_back(backward);
  session.prefer_gpu(problems);
  // A problem that the library declines fails here, before tensors of any size are made.
  session.require_supported(forward);
  if (config.backward) session.require_supported(backward);
  require_memory(config, session.device().memory_bytes);
  session.progress().start("check");
  const verify::Report report = verify::check(config, session.context());
  session.progress().finish();
  if (report.status != FA3_OK) fail(code_of(report.status), "{}", report.error);
  Verdict v;
  v.ok = report.ok;
  v.outputs = report.outputs;
  v.problem = problem_text(config);
  v.error = report.error;
  v.replay = replay_text(o);
  return v;
}

Verdict check_combine(const CheckOptions& o, Session& session) {
  const verify::CombineProblem problem = combine_problem(o);
  const fa3_combine_args shapes = shapes_combine(problem);
  session.prefer_gpu({shapes});
  session.require_supported(shapes);
  session.progress().start("check");
  Verdict v;
  v.problem = problem_text(problem);
  v.replay = replay_text(o);
  const verify::Report report = verify::check(problem, session.context(), v.replay);
  session.progress().finish();
  if (report.status != FA3_OK) fail(code_of(report.status), "{}", report.error);
  v.ok = report.ok;
  v.outputs = report.outputs;
  v.error = report.error;
  return v;
}

// Outputs whose bounds are so wide that the check says next to nothing about them.
std::vector<std::string> blind_outputs(const Verdict& v) {
  std::vector<std::string> names;
  for (const verify::OutputResult& r : v.outputs)
    if (r.blind()) names.push_back(r.name);
  return names;
}

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(fmt::format("{}", x)); }

Json to_json(const CheckOptions& o, const Verdict& v, const Session& session) {
  Json j;
  j["ok"] = v.ok;
  j["seed"] = o.file.path.empty() ? Json(o.seed) : Json(nullptr);
  if (o.schedule_seed) j["schedule_seed"] = *o.schedule_seed;
  add_device(session, j);
  if (!v.replay.empty()) j["replay"] = v.replay;
  if (!v.error.empty()) j["error"] = v.error;
  j["outputs"] = Json::object();
  for (const verify::OutputResult& r : v.outputs)
    j["outputs"][r.name] = {{"ok", r.ok},
                            {"max_err", number(r.max_err)},
                            {"bound", number(r.bound)},
                            {"where", r.where}};
  j["blind"] = blind_outputs(v);
  if (v.expectation) {
    const Expectation& e = *v.expectation;
    j["expected"] = {{"ok", e.ok},
                     {"tensor", o.expect},
                     {"max_err", number(e.max_err)},
                     {"rmse", number(e.rmse)},
                     {"bound", number(e.bound)},
                     {"where", e.where}};
  }
  return j;
}

std::string to_text(const CheckOptions& o, const Verdict& v, const Session& session) {
  std::string text = fmt::format("{}\nbackend {}", v.problem, device_text(session));
  if (o.file.path.empty()) text += fmt::format(", seed {}", o.seed);
  if (o.schedule_seed) text += fmt::format(", schedule seed {}", *o.schedule_seed);
  if (const std::string note = gpu_note(session); !note.empty()) text += "\ngpu     " + note;
  text +=
      fmt::format("\n\n{:<10} {:>12} {:>12}  {:<8} {}\n", "output", "max error", "bound", "", "at");
  const auto row = [&](const std::string& name, double error, double bound, bool ok,
                       const std::string& where) {
    text += fmt::format("{:<10} {:>12.4g} {:>12.4g}  {:<8} {}\n", name, error, bound,
                        ok ? "ok" : "FAILED", where);
  };
  for (const verify::OutputResult& r : v.outputs) row(r.name, r.max_err, r.bound, r.ok, r.where);
  if (v.expectation) {
    const Expectation& e = *v.expectation;
    text += fmt::format(
        "\no against the file's tensor '{}': largest difference {:.4g} at {}, RMSE {:.4g}, allowed "
        "{:.4g}: {}\n",
        o.expect, e.max_err, e.where, e.rmse, e.bound, e.ok ? "ok" : "FAILED");
  }
  text += v.ok ? "\nok: every error is within its bound\n" : "\nFAILED\n";
  for (const verify::OutputResult& r : v.outputs)
    if (r.blind())
      text += fmt::format(
          "blind: {}: the check says next to nothing. Large scores are rounded coarsely: "
          "lower --magnitude or --softmax-scale; so is P beside V of 8 bits: take 64 columns or "
          "more, or --v-dtype bf16\n",
          std::isnan(r.width) ? fmt::format("{} has NaN and nothing finite", r.name)
          : std::isfinite(r.width)
              ? fmt::format("the bounds of {} are {:.2g} times as large as its values", r.name,
                            r.width)
              : fmt::format("some bounds of {} are infinite", r.name));
  if (!v.error.empty()) text += v.error + "\n";
  if (!v.ok && !v.replay.empty()) text += "replay: " + v.replay + "\n";
  return text;
}

// The environment chooses the simulator's schedule: the same seed replays it in any program.
void choose_schedule(const CheckOptions& o) {
  if (!o.schedule_seed) return;
  if (o.session.backend != "sim")
    fail(kUsage, "--schedule-seed: is for --backend sim, got {}; choose that or leave it out",
         o.session.backend);
  setenv("FA3_SIM_SEED", std::to_string(*o.schedule_seed).c_str(), 1);
}

int check(const CheckOptions& o) {
  if (!(std::isfinite(o.tolerance) && o.tolerance >= 0))
    fail(kUsage, "--tolerance: got {}, need a finite number from 0", o.tolerance);
  choose_schedule(o);
  Session session(o.session.backend, o.session.threads, !o.session.quiet);
  Verdict v;
  try {
    v = !o.combine.empty()    ? check_combine(o, session)
        : o.file.path.empty() ? check_generated(o, session)
                              : check_file(o, session);
  } catch (const CliError& e) {
    const Json violation = o.session.json ? violation_json(e.what()) : Json();
    if (violation.is_null()) throw;
    Json j{{"ok", false}, {"violation", violation}};
    if (o.file.path.empty()) j["replay"] = replay_text(o);
    print(dump(j) + "\n");
    return e.code();
  }
  if (o.session.json)
    print(dump(to_json(o, v, session)) + "\n");
  else if (!o.session.quiet)
    print_text(to_text(o, v, session));
  return v.ok ? kDone : kCheckFailed;
}

// Options that describe a generated problem mean nothing for a file, and the other way round.
void check_usage(const Parser& parser, bool with_file) {
  for (const char* group : {kSizeGroup, kGeneratedGroup})
    if (const std::string name = parser.given(group); with_file && !name.empty())
      fail(kUsage, "{}: is for generated problems; leave it or the file out", name);
  for (const char* group : {kTensorGroup, kFileGroup})
    if (const std::string name = parser.given(group); !with_file && !name.empty())
      fail(kUsage, "{}: is for files; name a file or leave it out", name);
}

void add_generated_options(Parser& parser, CheckOptions& o) {
  parser.group(kGeneratedGroup);
  parser.whole("--seed", o.seed, "Seed of the tensors' values");
  parser.real(
      "--magnitude", o.magnitude,
      "Standard deviation of q (of k, v, do it is 1), with --combine of LSE; large: one key takes "
      "nearly all weight");
  parser.whole("--alignment", o.alignment,
               "Of q, k, v, o in bytes, and not of twice that; 0 = of an element, on backends cuda "
               "and sim 16");
  parser.whole("--spare-q", o.spare_q, "Unused rows of varlen tensors after the last sequence", 0,
               INT32_MAX);
  parser.whole("--spare-kv", o.spare_kv, "The same for keys", 0, INT32_MAX);
  parser.text("--seqused-q", o.seqused_q, "N,N,...", "Queries that count, per sequence [all]");
  parser.text("--seqused-kv", o.seqused_kv, "N,N,...", "Keys that count, per sequence [all]");
  parser.flag("--own-pages", o.own_pages, "No page of two sequences [some are shared]");
  parser.flag("--scattered-ids", o.scattered_ids,
              "The documents of --sequence-ids in no order, and queries of none");
  parser.flag("--no-lse", o.no_lse, "Forward without LSE");
  parser.flag("--dlse", o.dlse, "Backward with a gradient of LSE");
}

}  // namespace

Action add_check(Parser& parser) {
  auto o = std::make_shared<CheckOptions>();
  parser.text("input", o->file.path, "IN.safetensors",
              "File with the tensors q, k, v; - = stdin [a problem is generated]");
  add_problem_options(parser, o->problem);
  add_cache_options(parser, o->problem.cache);
  parser.group(kAttentionGroup);
  parser.text("--combine", o->combine, "N",
              "Instead of attention: N parts of O and LSE are merged, some of them without keys; "
              "any = a number of the seed's. With --batch, --heads-q, --seqlen-q or --varlen-q, "
              "--head-dim, --dtype, --out-dtype, --layout");
  parser.text("--layout", o->layout, "NAME",
              "Order in memory. Of a file's rank-4 tensors: bshd, bhsd [bshd]. Of a generated "
              "problem: dense, heads_first, seq_first, padded, interleaved (packed QKV), broadcast "
              "[dense]");
  add_generated_options(parser, *o);
  add_tensor_options(parser, o->file);
  parser.group(kFileGroup);
  parser.text("--expect", o->expect, "NAME", "Compare o with this tensor of the file too");
  parser.real("--tolerance", o->tolerance,
              "Largest difference from --expect, relative to its largest finite element; 0 = "
              "1e-5 for f32, 2^-9 for f16, 2^-6 for bf16");
  add_session_options(parser, o->session);
  parser.whole("--schedule-seed", o->schedule_seed,
               "Seed of the simulator's schedule, with --backend sim: who runs next, and when "
               "asynchronous work takes effect [FA3_SIM_SEED, else 0]");
  return [o, parser] {
    check_usage(parser, !o->file.path.empty());
    if (!o->combine.empty()) check_combine_usage(parser);
    return check(*o);
  };
}

}  // namespace fa3::cli
