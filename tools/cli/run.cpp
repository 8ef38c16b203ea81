// SPDX-License-Identifier: BSD-3-Clause
// run.cpp — `fa3 run`: attention on the tensors of a file, written to a file.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "attention_map.h"
#include "commands.h"
#include "device_text.h"
#include "error.h"
#include "file_problem.h"
#include "interrupt.h"
#include "json_text.h"
#include "output.h"
#include "session.h"
#include "tensor_file/staged_file.h"
#include "tools/verify/problem.h"
#include "tools/verify/tensor.h"
#include "work.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

struct RunOptions {
  FileOptions file;
  ScoreOptions score;
  SessionOptions session;
  std::string output;
  bool backward = false;
  std::string map;  // "" = none
  int64_t head = 0;
  int64_t batch = 0;
};

struct Timing {
  double forward_s = 0, backward_s = 0;
  double forward_flops = 0;
};

double gflops(double flops, double seconds) { return seconds > 0 ? flops / seconds * 1e-9 : 0; }

Json to_json(const RunOptions& o, const FileProblem& p, const Session& session, const Timing& t) {
  const auto tensor = [](const HostTensor& x) {
    return Json{{"shape", x.shape}, {"dtype", verify::dtype_text(x.dtype)}};
  };
  Json j;
  add_device(session, j);
  j["mask"] = mask_text(p.mask);
  for (const HostTensor* x : {&p.at("q"), &p.at("k"), &p.at("v")})
    j["inputs"][x->name] = tensor(*x);
  for (const HostTensor* x : p.outputs()) j["outputs"][x->name] = tensor(*x);
  j["output"] = o.output;
  if (!o.map.empty()) j["map"] = o.map;
  const auto timing = [](double seconds, double flops) {
    return Json{{"seconds", seconds}, {"flops", flops}, {"gflops", gflops(flops, seconds)}};
  };
  j["forward"] = timing(t.forward_s, t.forward_flops);
  if (o.backward) j["backward"] = timing(t.backward_s, kBackwardToForward * t.forward_flops);
  return j;
}

std::string timing_line(const char* name, double seconds, double flops) {
  return fmt::format("{:9} {:.4g} ms, {:.4g} GFLOP/s (one run)\n", name, 1e3 * seconds,
                     gflops(flops, seconds));
}

std::string to_text(const RunOptions& o, const FileProblem& p, const Session& session,
                    const Timing& t) {
  std::string text;
  for (const HostTensor* x : {&p.at("q"), &p.at("k"), &p.at("v")})
    text += fmt::format("{:9} {}\n", x->name, tensor_text(*x));
  text += fmt::format("{:9} {}\n", "mask", mask_text(p.mask));
  text += fmt::format("{:9} {}\n", "backend", device_text(session));
  if (const std::string note = gpu_note(session); !note.empty())
    text += fmt::format("{:9} {}\n", "gpu", note);
  text += timing_line("forward", t.forward_s, t.forward_flops);
  if (o.backward)
    text += timing_line("backward", t.backward_s, kBackwardToForward * t.forward_flops);
  std::string names;
  for (const HostTensor* x : p.outputs())
    names += fmt::format("{}{} {}", names.empty() ? "" : ", ", x->name, tensor_text(*x));
  text += fmt::format("{:9} {}: {}\n", "wrote", o.output, names);
  if (!o.map.empty())
    text += fmt::format("{:9} {}: head {}, sequence {}\n", "map", o.map, o.head, o.batch);
  return text;
}

// Whether two paths name one file, which may not exist yet.
bool same_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  return fs::equivalent(a, b, ignored) ||
         fs::weakly_canonical(tools::follow_links(a, ignored), ignored) ==
             fs::weakly_canonical(tools::follow_links(b, ignored), ignored);
}

void check_places(const RunOptions& o) {
  if (o.map == kStandardStream)
    fail(kUsage, "--map: got -, need a file to write the picture to; only -o takes - for stdout");
  for (const auto& [what, path] : {std::pair("input", o.file.path), std::pair("output", o.output)})
    if (!o.map.empty() && path != kStandardStream && same_file(o.map, path))
      fail(kUsage, "--map: {} is the {} too, which the picture would replace; name another file",
           o.map, what);
  check_output(o.output, o.session.json);
}

// What would have no effect.
void check_idle(const RunOptions& o) {
  const auto named = [&](const char* field) {
    const auto at = o.file.names.find(field);
    return at != o.file.names.end() && !at->second.value_or("").empty();
  };
  for (const auto& [option, given] :
       {std::pair("--grad-dtype", o.file.grad_dtype != "input"),
        std::pair("--do-name", named("dout")), std::pair("--dlse-name", named("dlse"))})
    if (given && !o.backward)
      fail(kUsage, "{}: a forward has no gradients; add --backward or leave it out", option);
  for (const auto& [option, value] : {std::pair("--head", o.head), std::pair("--batch", o.batch)})
    if (value != 0 && o.map.empty())
      fail(kUsage, "{}: got {}, but nothing is drawn; add --map or leave it out", option, value);
}

int run(const RunOptions& o) {
  check_places(o);
  check_idle(o);
  check_gradients(o.file.gradients, o.backward);
  if (o.backward && precision_value(o.file.precision.name) != FA3_PRECISION_DEFAULT)
    fail(kUsage, "--precision: a backward has none; leave --backward or --precision out");
  const tools::TensorFile file = open_file(o.file);
  defer_interrupts();  // not earlier: reading a pipe may block forever, and leaves nothing behind
  Session session(o.session.backend, o.session.threads, !o.session.quiet);
  FileProblem problem = load_problem(file, o.file, o.score, o.backward);
  const fa3_forward_args forward = problem.forward_args();
  const fa3_backward_args backward = problem.backward_args();
  std::vector<Question> problems{forward};
  if (o.backward) problems.push_back(backward);
  session.prefer_gpu(problems);
  Prepared forward_plan = session.prepare(forward);
  Prepared backward_plan;
  if (o.backward) backward_plan = session.prepare(backward);

  // The arguments are valid; an unwritable output fails now rather than after the work.
  const bool to_stdout = o.output == kStandardStream;
  std::optional<tools::TensorFileWriter> writer;
  if (!to_stdout) writer.emplace(o.output);
  std::optional<tools::StagedFile> picture;
  if (!o.map.empty()) picture.emplace(o.map, "--map: ");

  Timing timing;
  session.upload(forward_plan, forward);
  timing.forward_s = session.run(forward_plan, forward, "forward");
  session.download(forward_plan);
  if (o.backward) {
    session.upload(backward_plan, backward);  // with O and LSE, which the forward has just written
    timing.backward_s = session.run(backward_plan, backward, "backward");
    session.download(backward_plan);
  }
  timing.forward_flops = forward_flops(forward);
  if (picture) {
    const std::string png = draw_png(attention_map(forward, o.head, o.batch, session.progress()));
    tools::write_all(picture->descriptor(), picture->name(), png.data(), png.size());
  }

  stop_if_interrupted();
  std::vector<tools::Tensor> tensors;
  for (const HostTensor* t : problem.outputs()) tensors.push_back(t->file_tensor());
  std::string report;
  if (o.session.json)
    report = dump(to_json(o, problem, session, timing)) + "\n";
  else if (!o.session.quiet && !to_stdout)
    report = as_shown(to_text(o, problem, session, timing));
  if (to_stdout)
    tools::write_tensors(STDOUT_FILENO, "stdout", tensors);
  else
    writer->commit(tensors);
  if (picture) picture->commit();
  print(report);
  return kDone;
}

}  // namespace

Action add_run(Parser& parser) {
  auto o = std::make_shared<RunOptions>();
  parser.required("input", o->file.path, "IN.safetensors",
                  "File with the tensors q, k, v; - = stdin");
  parser.required("-o,--output", o->output, "OUT.safetensors",
                  "Where to write o and lse (with --backward dq, dk, dv too, with --dattn-mask "
                  "dattn_mask); may be the input; - = stdout, which then has nothing else");
  parser.group("Attention");
  parser.flag("--backward", o->backward, "Compute the gradients too; needs the tensor do");
  add_gradient_options(parser, o->file.gradients);
  add_score_options(parser, o->score);
  add_precision_options(parser, o->file.precision);
  add_type_options(parser, o->file);
  add_layout_option(parser, o->file);
  add_tensor_options(parser, o->file);
  parser.group("Picture");
  parser.text("--map", o->map, "FILE.png",
              "Draw the attention probabilities of one head as a PNG picture");
  parser.whole("--head", o->head, "Query head to draw, from 0");
  parser.whole("--batch", o->batch, "Sequence to draw, from 0");
  add_session_options(parser, o->session);
  return [o] { return run(*o); };
}

}  // namespace fa3::cli
