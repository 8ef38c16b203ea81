// SPDX-License-Identifier: BSD-3-Clause
// static_tls.cpp — the C++ library's thread-local variables, had before they are needed.
//
// Where a C program opens this library, libstdc++ comes with it, and the loader allocates the
// variables that an exception needs (__cxa_get_globals) at the first one in each thread. Where that
// was thrown for want of memory, the process ends. A variable that is accessed by descriptor lets
// the loader put all of its library into the memory that threads are started with, while there is
// room; CMakeLists.txt asks for descriptors in this file.
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
