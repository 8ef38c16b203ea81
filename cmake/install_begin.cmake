# SPDX-License-Identifier: BSD-3-Clause
# Runs inside cmake --install, before files are installed: makes paths absolute, and notes in fa3_new_dirs the folders
# that are not there yet, since an uninstall has to remove these and no others. A line of the manifest that ends in / is
# a folder; a line that begins with / lies above the prefix, the others below it.
get_filename_component(CMAKE_INSTALL_PREFIX "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
if(NOT "$ENV{DESTDIR}" STREQUAL "")
  get_filename_component(fa3_stage "$ENV{DESTDIR}" ABSOLUTE)
  set(ENV{DESTDIR} "${fa3_stage}")
endif()
set(fa3_new_dirs "")
foreach(dir ${fa3_dirs})
  set(path "${CMAKE_INSTALL_PREFIX}/${dir}")
  while(NOT EXISTS "$ENV{DESTDIR}${path}" AND NOT path STREQUAL "/")
    file(RELATIVE_PATH line "${CMAKE_INSTALL_PREFIX}" "${path}")
    if(line MATCHES "^\\.\\.")
      set(line "${path}")
    elseif(line STREQUAL "")
      set(line ".")
    endif()
    list(APPEND fa3_new_dirs "${line}/")
    get_filename_component(path "${path}" DIRECTORY)
  endwhile()
endforeach()
