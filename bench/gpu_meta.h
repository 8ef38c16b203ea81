// SPDX-License-Identifier: BSD-3-Clause
// gpu_meta.h — the first line of a result measured on a GPU: which commit, on which GPU, with which
// driver and CUDA. The same fields as gpu_meta() of machine.py, which refuses results without them.
#pragma once

#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "tools/measure/nvml.h"

namespace fa3::bench {

// One JSON object; `commit` as `bench/machine.py` prints it.
inline std::string meta_line(const std::string& suite, const std::string& commit,
                             const std::string& device_name, const std::string& fa3) {
  const measure::DriverVersions versions = measure::Nvml().versions();
  char started[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%S+00:00", std::gmtime(&now));
  std::string line = "{\"kind\": \"meta\"";
  const auto add = [&](const char* name, const std::string& value) {
    line += std::string(", \"") + name + "\": \"" + value + "\"";
  };
  add("suite", suite);
  add("started", started);
  add("device_name", device_name);
  add("driver", versions.driver);
  add("cuda", versions.cuda);
  add("fa3", fa3);
  add("fa3_commit", commit);
  return line + "}";
}

// Takes `name VALUE` out of the arguments; `otherwise` where it is not there.
inline std::string take_option(int& argc, char** argv, const char* name,
                               const std::string& otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], name) != 0) continue;
    const std::string value = argv[i + 1];
    for (int k = i; k + 2 <= argc; ++k) argv[k] = argv[k + 2];  // the NULL at the end, too
    argc -= 2;
    return value;
  }
  return otherwise;
}

// --commit COMMIT; says so where it is missing.
inline std::string take_commit(int& argc, char** argv) {
  const std::string commit = take_option(argc, argv, "--commit", measure::kUnknown);
  if (commit == measure::kUnknown)
    std::fprintf(stderr, "%s: no --commit \"$(bench/machine.py)\": not a result to publish\n",
                 argv[0]);
  return commit;
}

}  // namespace fa3::bench
