// SPDX-License-Identifier: BSD-3-Clause
// jit.cpp — fa3_jit: what the first use of a GPU kernel costs when it is compiled, found on disk,
// or in memory, by way of fa3_jit_warm_kernels. Needs NVRTC, but no GPU. Writes one JSON object a
// line.
//     fa3_jit [ROUNDS] [FILE]      each round compiles every known kernel once; default 5, stdout
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "fa3/fa3.h"

namespace {

using Json = nlohmann::ordered_json;

void check(fa3_status status) {
  if (status != FA3_OK) throw std::runtime_error(fa3_last_error());
}

// What fa3_jit_warm_kernels reports in a context with that cache folder: once, then again in the
// same process.
std::pair<Json, Json> warm_twice(const std::string& cache) {
  fa3_context_options options{};
  options.struct_size = sizeof options;
  options.cache_dir = cache.c_str();
  fa3_context* context = nullptr;
  check(fa3_context_create(&options, &context));
  const char* report = nullptr;
  check(fa3_jit_warm_kernels(context, nullptr, 0, &report));
  const Json first = Json::parse(report);
  check(fa3_jit_warm_kernels(context, nullptr, 0, &report));
  const Json second = Json::parse(report);
  fa3_context_destroy(context);
  return {first, second};
}

// The same in a process of its own, since kernels stay in memory as long as the process.
std::pair<Json, Json> in_new_process(const std::string& cache) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = fork();
  if (child == 0) {
    std::string text;
    try {
      const auto [first, second] = warm_twice(cache);
      text = Json{first, second}.dump();
    } catch (const std::exception& error) {
      text = Json(error.what()).dump();
    }
    for (size_t at = 0; at < text.size();) {
      const ssize_t written = write(ends[1], text.data() + at, text.size() - at);
      if (written <= 0) break;
      at += static_cast<size_t>(written);
    }
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  const Json both = Json::parse(text);
  if (both.is_string()) throw std::runtime_error(both.get<std::string>());
  return {both[0], both[1]};
}

using Times = std::map<std::string, std::vector<double>>;

// The first kernel of a process is reported separately: it also opens the cache and, to compile,
// NVRTC.
void add(Times& times, const Json& rows, const std::string& source) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]["source"] != source) {
      throw std::runtime_error("expected a kernel from " + source + ", got one from " +
                               rows[i]["source"].get<std::string>());
    }
    const bool first = i == 0 && source != "memory";
    times[source + (first ? "_first_of_process" : "")].push_back(rows[i]["ms"]);
  }
}

Json measure(int rounds) {
  std::string folder = (std::filesystem::temp_directory_path() / "fa3-jit-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  Times times;
  (void)in_new_process(folder + "/unmeasured");  // brings the compiler's file into the page cache
  for (int round = 0; round < rounds; ++round) {
    const std::string cache = folder + "/" + std::to_string(round);
    const auto [compiled, again] = in_new_process(cache);
    add(times, compiled, "compiled");
    add(times, again, "memory");
    add(times, in_new_process(cache).first, "disk");
  }
  std::filesystem::remove_all(folder);
  Json result;
  for (auto& [what, values] : times) {
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
      return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
    };
    result[what] = {{"median_ms", at(0.5)},
                    {"p90_ms", at(0.9)},
                    {"most_ms", values.back()},
                    {"samples", values.size()}};
  }
  return result;
}

// Where and with what it is measured.
Json setting() {
  fa3_context* context = nullptr;
  check(fa3_context_create(nullptr, &context));
  fa3_device_info device{};
  device.struct_size = sizeof device;
  check(fa3_get_device_info(context, &device));
  const char* report = nullptr;
  check(fa3_jit_list(context, &report));
  const Json nvrtc = Json::parse(report)["nvrtc"];
  fa3_context_destroy(context);
  return {{"device_name", device.name},
          {"fa3", fa3_version()},
          {"nvrtc", nvrtc.value("version", "none")}};
}

std::string now() {
  char text[32];
  const time_t seconds = time(nullptr);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
    if (rounds < 1) throw std::runtime_error("ROUNDS is not a number above 0");
    Json line = {{"kind", "jit"}, {"suite", "jit"}, {"started", now()}, {"rounds", rounds}};
    const Json times = measure(rounds);  // first: its processes begin without NVRTC in them
    line.update(setting());
    double load = 0;
    line["load_average"] = getloadavg(&load, 1) == 1 ? Json(load) : Json(nullptr);
    line.update(times);
    std::ofstream file;
    if (argc > 2) file.open(argv[2]);
    (argc > 2 ? file : std::cout) << line.dump() << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "fa3_jit: " << error.what() << "\n";
    return 1;
  }
}
