// SPDX-License-Identifier: BSD-3-Clause
// dtypes.h — the rules of fa3.h on element types.
#pragma once

#include "core/scalars.h"
#include "core/status.h"

namespace fa3 {

// Whether the types of the tensors that are present fit each other and the operation.
Status check_dtypes(const Args& args);

}  // namespace fa3
