# SPDX-License-Identifier: BSD-3-Clause
# Runs inside cmake --install, before files are installed: makes paths absolute, and notes in fa3_new_dirs the folders
# that are not there yet, since an uninstall has to remove these and no others. A line of the manifest that ends in / is
# a folder; a line that begins with / lies above the prefix, the others below it.
if("${CMAKE_INSTALL_PREFIX}$ENV{DESTDIR}" MATCHES ";|\\[|\\]")
  message(FATAL_ERROR "fa3: the prefix '${CMAKE_INSTALL_PREFIX}' or DESTDIR '$ENV{DESTDIR}' has a ; or [ or ], which "
    "CMake's lists of files cannot hold; install into another place. Nothing was installed.")
endif()
if(CMAKE_INSTALL_PREFIX STREQUAL "")  # CMake's name for /
  set(fa3_root "/")
else()
  get_filename_component(CMAKE_INSTALL_PREFIX "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
  set(fa3_root "${CMAKE_INSTALL_PREFIX}")
endif()
if(NOT "$ENV{DESTDIR}" STREQUAL "")
  get_filename_component(fa3_stage "$ENV{DESTDIR}" ABSOLUTE)
  set(ENV{DESTDIR} "${fa3_stage}")
endif()
set(fa3_new_dirs "")
foreach(dir ${fa3_dirs})
  set(path "${CMAKE_INSTALL_PREFIX}/${dir}")
  while(NOT EXISTS "$ENV{DESTDIR}${path}" AND NOT path STREQUAL "/")
    file(RELATIVE_PATH line "${fa3_root}" "${path}")
    if(line MATCHES "^\\.\\.")
      set(line "${path}")
    elseif(line STREQUAL "")
      set(line ".")
    endif()
    list(APPEND fa3_new_dirs "${line}/")
    get_filename_component(path "${path}" DIRECTORY)
  endwhile()
endforeach()
