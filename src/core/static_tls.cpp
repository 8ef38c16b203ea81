// SPDX-License-Identifier: BSD-3-Clause
// static_tls.cpp — the C++ library's thread-local variables, allocated before they are needed.
//
// Where a C program opens this library, libstdc++ comes with it, and the loader allocates the
// variables that an exception needs (__cxa_get_globals) at the first one in each thread. If that
// was thrown because memory ran out, the process ends. A variable accessed by descriptor lets the
// loader put all those of its library into the memory that threads start with, while there is
// space; CMakeLists.txt asks for descriptors in this file.
#include "core/static_tls.h"

#include <mutex>

namespace fa3 {

bool touch_cxx_tls() {
#ifdef _GLIBCXX_HAVE_TLS
  return std::__once_callable == nullptr;
#else
  return true;
#endif
}

}  // namespace fa3
