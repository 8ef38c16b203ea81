// SPDX-License-Identifier: BSD-3-Clause
// static_tls.h — the C++ library's thread-local variables, allocated before they are needed.
#pragma once

namespace fa3 {

// What it returns does not matter: a call keeps the access that static_tls.cpp describes.
bool touch_cxx_tls();

}  // namespace fa3
