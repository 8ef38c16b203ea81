// SPDX-License-Identifier: BSD-3-Clause
// explain.cpp — `fa3 explain`: how a problem would be computed.
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "error.h"
#include "json_text.h"
#include "output.h"
#include "problem.h"
#include "session.h"
#include "tools/verify/cache.h"

namespace fa3::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainOptions {
  ProblemOptions problem;
  PrecisionOptions precision;
  SessionOptions session;
};

int explain(const ExplainOptions& o) {
  verify::Config config = make_config(o.problem);
  if (verify::has_cache(config)) config.seed = 1;  // with a bound of lengths, as in `fa3 bench`
  if (const std::string why = verify::contradiction(config); !why.empty())
    fail(kUsage, "the options contradict each other: {}", why);
  Session session(o.session.backend, o.session.threads, false);
  fa3_forward_args forward = shapes_forward(config);
  forward.precision = precision_value(o.precision.name);
  forward.precision_seed = static_cast<uint64_t>(o.precision.seed);
  if (config.backward && forward.precision != FA3_PRECISION_DEFAULT)
    fail(kUsage, "--precision: a backward has none; leave --backward or --precision out");
  const fa3_backward_args backward = shapes_backward(config);
  session.prefer_gpu({config.backward ? Question(backward) : Question(forward)});
  const std::string plan = config.backward ? session.explain(backward) : session.explain(forward);
  if (o.session.json)
    print(dump(Json::parse(plan), 2) + "\n");
  else if (!o.session.quiet)
    print_text(json_text(Json::parse(plan)));
  return kDone;
}

}  // namespace

Action add_explain(Parser& parser) {
  auto o = std::make_shared<ExplainOptions>();
  add_problem_options(parser, o->problem);
  add_cache_options(parser, o->problem.cache);
  add_precision_options(parser, o->precision);
  add_session_options(parser, o->session);
  return [o] { return explain(*o); };
}

}  // namespace fa3::cli
