// SPDX-License-Identifier: BSD-3-Clause
// bench.cpp — `fa3 bench`: how fast a backend is, on one problem or on a file of named ones.
#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "cases.h"
#include "commands.h"
#include "device_text.h"
#include "error.h"
#include "json_text.h"
#include "output.h"
#include "problem.h"
#include "session.h"
#include "tools/verify/cache.h"
#include "tools/verify/check.h"
#include "work.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  ProblemOptions problem;
  SessionOptions session;
  std::vector<std::string> cases;
  std::string only;
  int64_t warmup = 1;
  int64_t repetitions = 10;
  bool no_verify = false;
  bool decode = false;
};

struct Times {
  double median_s = 0, p10_s = 0, p90_s = 0;
  int64_t calls = 1;  // per repetition, which is their mean
  double flops = 0, kv_bytes = 0;

  double gflops() const { return median_s > 0 ? flops / median_s * 1e-9 : 0; }
  double kv_gb_per_s() const { return median_s > 0 ? kv_bytes / median_s * 1e-9 : 0; }
};

// What --decode means: a token of each sequence on a cache, where no other option says otherwise.
void preset_decode(const Parser& parser, ProblemOptions& o) {
  if (o.backward) fail(kUsage, "--decode: is a forward; leave it or --backward out");
  const auto preset = [&](const char* name, auto& value, auto usual) {
    if (!parser.has(name)) value = usual;
  };
  preset("--dtype", o.dtype, "bf16");
  if (o.varlen_q.empty() && o.varlen_kv.empty()) preset("--batch", o.batch, 8);
  if (!parser.has("--heads-q")) preset("--heads-kv", o.heads_kv, 8);
  preset("--heads-q", o.heads_q, 32);
  preset("--seqlen-q", o.seqlen_q, 1);
  preset("--seqlen-kv", o.seqlen_kv, 4096);
  preset("--head-dim", o.head_dim, 128);
  if (o.varlen_kv.empty() && o.cache.kv_slots == 0 && !o.cache.packed_kv)
    preset("--page-size", o.cache.page_size, 16);
  o.score.causal = o.score.window.empty();
}

std::vector<Case> collect_cases(const BenchOptions& o) {
  std::vector<Case> cases;
  for (const std::string& path : o.cases) read_cases(path, cases);
  if (o.cases.empty()) {
    verify::Config config = make_config(o.problem);
    config.seed = 1;
    config.own_pages = config.page_size > 0;  // a page of two sequences would be read once
    if (const std::string why = verify::contradiction(config); !why.empty())
      fail(kUsage, "{}", why);
    const bool backward = config.backward;
    config.backward = false;
    cases.push_back({o.decode ? "decode" : "forward", config});
    config.backward = true;
    if (backward) cases.push_back({"backward", config});
  }
  std::erase_if(cases, [&](const Case& c) { return c.name.find(o.only) == std::string::npos; });
  if (cases.empty()) fail(kBadInput, "--only: no case has '{}' in its name", o.only);
  return cases;
}

// ---- Measuring ----

// A piece of a case that is quick to check and takes the same code paths: fewer heads and
// sequences, shorter ones, of lengths that divide no tile.
verify::Config slice(verify::Config c) {
  constexpr int64_t kLongest = 173;
  const int64_t group = c.heads_kv > 0 ? c.heads_q / c.heads_kv : 1;
  c.heads_kv = std::min<int64_t>(c.heads_kv, 1);
  c.heads_q = std::min(c.heads_q, c.heads_kv * group);
  c.batch = std::min<int64_t>(c.batch, 2);
  for (std::vector<int64_t>* lengths : {&c.varlen_q, &c.varlen_kv}) {
    if (lengths->size() > 2) lengths->resize(2);
    for (int64_t& n : *lengths) n = std::min(n, kLongest);
  }
  c.seqlen_q = std::min(c.seqlen_q, kLongest);
  c.seqlen_kv = std::min(c.seqlen_kv, kLongest);
  return c;
}

void verify_slice(const Case& c, Session& session, const std::string& backend) {
  const verify::Config config = slice(c.config);
  const verify::Report report = verify::check(config, session.context());
  if (report.status != FA3_OK) fail(code_of(report.status), "{}: {}", c.name, report.error);
  if (!report.ok)
    fail(kCheckFailed, "{}: a slice of it is wrong, so nothing is measured; see {}", c.name,
         verify::replay_command(config, backend));
}

// Calls that fill a repetition on a GPU: timing a single one would include its launch overhead on
// the host.
int64_t calls_for(double seconds) {
  constexpr double kRepetition_s = 3e-3;
  constexpr int64_t kMost = 1000;
  return std::clamp<int64_t>(std::llround(kRepetition_s / std::max(seconds, 1e-9)), 1, kMost);
}

template <class Args>
Times time_runs(const BenchOptions& o, const Case& c, Session& session, const Prepared& plan,
                const Args& args) {
  const char* const name = c.name.c_str();
  for (int64_t i = 0; i < o.warmup; ++i) session.run(plan, args, name);
  const int64_t calls = session.on_gpu() ? calls_for(session.run(plan, args, name, 2)) : 1;
  std::vector<double> seconds;
  for (int64_t i = 0; i < o.repetitions; ++i)
    seconds.push_back(session.run(plan, args, name, calls));
  std::sort(seconds.begin(), seconds.end());
  const auto quantile = [&](double q) {  // the nearest of those measured
    return seconds[static_cast<size_t>(q * static_cast<double>(seconds.size() - 1) + 0.5)];
  };
  return {quantile(0.5), quantile(0.1), quantile(0.9), calls};
}

Times measure(const BenchOptions& o, const Case& c, Session& session) {
  session.require_supported(shapes_forward(c.config));
  if (c.config.backward) session.require_supported(shapes_backward(c.config));
  require_memory(c.config, session.device().memory_bytes);
  if (!o.no_verify) verify_slice(c, session, o.session.backend);
  verify::Config config = verify::aligned(c.config, fa3_backend(session.device().backend));
  if (session.on_gpu()) config.alignment = 256;  // as cuMemAlloc gives it
  const verify::Tensors tensors = verify::make_tensors(config);
  const fa3_forward_args forward = verify::forward_args(config, tensors);
  Prepared forward_plan = session.prepare(forward);
  session.upload(forward_plan, forward);
  if (!c.config.backward) {
    Times t = time_runs(o, c, session, forward_plan, forward);
    t.flops = forward_flops(forward);
    t.kv_bytes = kv_bytes(forward);
    return t;
  }
  session.run(forward_plan, forward, "forward");  // makes o and lse
  session.download(forward_plan);
  const fa3_backward_args backward = verify::backward_args(c.config, tensors);
  Prepared backward_plan = session.prepare(backward);
  session.upload(backward_plan, backward);
  Times t = time_runs(o, c, session, backward_plan, backward);
  t.flops = kBackwardToForward * forward_flops(forward);
  return t;
}

// ---- Reporting ----

void add_scales(const verify::Config& x, Json& j) {
  using verify::Operand;
  const auto scales = [&](Operand of) { return verify::scales_text(verify::scales_of(x, of)); };
  j["v_dtype"] = verify::dtype_text(verify::dtype_of_v(x));
  j["q_scale"] = scales(Operand::kQ);
  j["k_scale"] = scales(Operand::kK);
  j["v_scale"] = scales(Operand::kV);
  j["k_offset"] = x.k_offset;
  j["v_offset"] = x.v_offset;
}

void add_cache(const verify::Config& x, Json& j) {
  j["page_size"] = x.page_size;
  j["kv_slots"] = x.kv_slots;
  j["kv_begin"] = x.kv_begin;
  j["packed_kv"] = x.packed_kv;
}

Json to_json(const BenchOptions& o, const Case& c, const Session& session, const Times& t) {
  const verify::Config& x = c.config;
  Json j;
  j["name"] = c.name;
  j["op"] = x.backward ? "backward" : "forward";
  if (x.backward) j["deterministic"] = x.deterministic;
  j["dtype"] = verify::dtype_text(x.dtype);
  if (verify::is_8_bit(x.dtype)) add_scales(x, j);
  j["batch"] = x.batch;
  j["heads_q"] = x.heads_q;
  j["heads_kv"] = x.heads_kv;
  if (x.varlen_q.empty())
    j["seqlen_q"] = x.seqlen_q;
  else
    j["varlen_q"] = x.varlen_q;
  if (x.varlen_kv.empty())
    j["seqlen_kv"] = x.seqlen_kv;
  else
    j["varlen_kv"] = x.varlen_kv;
  if (verify::has_cache(x)) add_cache(x, j);
  j["head_dim_qk"] = x.head_dim_qk;
  j["head_dim_v"] = x.head_dim_v;
  j["mask"] = mask_text({x.mask, x.left, x.right});
  j["softcap"] = x.softcap;
  for (const auto& [name, value] : x.numbers)
    if (value == std::floor(value))
      j[name] = static_cast<int64_t>(value);
    else
      j[name] = value;
  j["alibi"] = x.alibi;
  j["with"] = x.with;
  j["sequence_ids"] = x.sequence_ids;
  j["attn_mask"] = x.attn_mask == 0 ? "none" : verify::dtype_text(x.attn_mask);
  if (x.attn_mask != 0) j["mask_dims"] = x.mask_dims;
  add_device(session, j);
  j["clock"] = session.on_gpu() ? "events" : "wall";
  j["calls"] = t.calls;
  j["version"] = fa3_version();
  j["verified"] = !o.no_verify;
  j["repetitions"] = o.repetitions;
  j["median_ms"] = 1e3 * t.median_s;
  j["p10_ms"] = 1e3 * t.p10_s;
  j["p90_ms"] = 1e3 * t.p90_s;
  j["flops"] = t.flops;
  j["gflops"] = t.gflops();
  if (x.backward) return j;
  j["kv_bytes"] = t.kv_bytes;
  j["kv_gb_per_s"] = t.kv_gb_per_s();
  return j;
}

// Decode takes microseconds and is bound by memory.
std::string table_head(const BenchOptions& o, size_t width) {
  return fmt::format("\n{:<{}}  {:>10} {:>10} {:>10} {:>10}{}\n", "case", width, "median", "p10",
                     "p90", "GFLOP/s", o.decode ? fmt::format(" {:>10}", "KV GB/s") : "");
}

std::string table_row(const BenchOptions& o, const Case& c, const Times& t, size_t width) {
  const auto time = [&](double s) {
    return o.decode ? fmt::format("{:.2f}", 1e6 * s) : fmt::format("{:.4g}", 1e3 * s);
  };
  return fmt::format("{:<{}}  {:>10} {:>10} {:>10} {:>10.4g}{}\n", c.name, width, time(t.median_s),
                     time(t.p10_s), time(t.p90_s), t.gflops(),
                     o.decode ? fmt::format(" {:>10.4g}", t.kv_gb_per_s()) : "");
}

void prefer_gpu(const std::vector<Case>& cases, Session& session) {
  std::vector<fa3_forward_args> forward;
  std::vector<fa3_backward_args> backward;
  for (const Case& c : cases) {
    forward.push_back(shapes_forward(c.config));
    if (c.config.backward) backward.push_back(shapes_backward(c.config));
  }
  std::vector<Question> problems(forward.begin(), forward.end());
  problems.insert(problems.end(), backward.begin(), backward.end());
  session.prefer_gpu(problems);
}

int bench(const BenchOptions& o) {
  const std::vector<Case> cases = collect_cases(o);
  Session session(o.session.backend, o.session.threads, !o.session.quiet);
  prefer_gpu(cases, session);
  size_t width = 4;
  for (const Case& c : cases) width = std::max(width, c.name.size());
  const bool table = !o.session.json && !o.session.quiet;
  if (table) {
    print_text(fmt::format("{}; {} repetitions after {} to warm up; times in {}{}\n",
                           device_text(session), o.repetitions, o.warmup, o.decode ? "µs" : "ms",
                           session.on_gpu() ? ", between events around calls that fill 3 ms" : ""));
    if (const std::string note = gpu_note(session); !note.empty()) print_text(note + "\n");
    if (cases.size() == 1) print_text(problem_text(cases[0].config) + "\n");
    print_text(table_head(o, width));
    flush();
  }
  for (const Case& c : cases) {
    const Times t = measure(o, c, session);
    if (o.session.json) print(dump(to_json(o, c, session, t)) + "\n");
    if (table) print_text(table_row(o, c, t, width));
    flush();
  }
  return kDone;
}

}  // namespace

Action add_bench(Parser& parser) {
  auto o = std::make_shared<BenchOptions>();
  add_problem_options(parser, o->problem);
  add_cache_options(parser, o->problem.cache);
  parser.flag("--decode", o->decode,
              "A token of each sequence on a cache: --batch 8 --seqlen-q 1 --seqlen-kv 4096 "
              "--heads-q 32 --heads-kv 8 --head-dim 128 --page-size 16 --dtype bf16 --causal where "
              "no other option says otherwise; times in microseconds, and GB/s of k and v");
  parser.group("Measurement");
  parser.texts("--cases", o->cases, "FILE.json",
               "JSON file: an array of named problems, instead of the options above; repeatable");
  parser.text("--only", o->only, "TEXT", "Only cases with this text in their name");
  parser.whole("--warmup", o->warmup, "Runs before the measured ones");
  parser.whole("--repetitions", o->repetitions, "Measured runs", 1);
  parser.flag("--no-verify", o->no_verify, "Measure without the check");
  add_session_options(parser, o->session);
  return [o, parser] {
    if (!o->cases.empty()) refuse_beside_cases(parser);
    if (o->decode) preset_decode(parser, o->problem);
    return bench(*o);
  };
}

}  // namespace fa3::cli
