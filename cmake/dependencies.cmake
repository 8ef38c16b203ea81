# SPDX-License-Identifier: BSD-3-Clause
# fa3_need(Package debian-package [find_package arguments…]): find_package that says what to install.
macro(fa3_need package debian)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR
      "fa3: ${package} was not found. On Debian: apt-get install ${debian} (scripts/setup installs all that fa3 "
      "needs). Elsewhere: set CMAKE_PREFIX_PATH to where it is installed.")
  endif()
endmacro()
