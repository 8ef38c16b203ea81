// SPDX-License-Identifier: BSD-3-Clause
// tuning_file.h — the file that FA3_TUNING names and `fa3 tune` writes:
//   {"fa3_tuning": 1, "fa3": "0.2.0", "gpu": "NVIDIA H200",
//    "problems": [{"problem": "forward bf16 …" (key_of), "row": "d128", … what was measured}, …]}
#pragma once

#include <memory>
#include <string>

#include "core/log.h"
#include "core/status.h"
#include "core/tuning.h"

namespace fa3 {

// INVALID_ARGUMENT for a file that is none. A file of another GPU or version of fa3 is not used,
// which is logged as a warning: null.
Result<std::shared_ptr<const Tuning>> read_tuning(const std::string& path, const std::string& gpu,
                                                  const Logger& logger);

}  // namespace fa3
