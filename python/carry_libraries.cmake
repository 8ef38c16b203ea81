# SPDX-License-Identifier: BSD-3-Clause
# Run when a wheel is made: puts beside libfa3 the libraries that it links, but for those of every Linux system, and
# what their packages say about their licences. fa3_library: the libfa3 that was built.
set(folder $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/fa3/lib)
file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${fa3_library} RESOLVED_DEPENDENCIES_VAR libraries
  PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|gcc_s|stdc\\+\\+)\\.so" "^ld-linux")
set(licences "libfa3 itself: see LICENSE. The libraries beside it:\n")
foreach(library ${libraries})
  get_filename_component(soname ${library} NAME)
  get_filename_component(file ${library} REALPATH)
  message(STATUS "Carrying: ${file} as ${soname}")
  file(COPY_FILE ${file} ${folder}/${soname})
  string(REGEX MATCH "^lib[a-z]+" stem ${soname})
  file(GLOB texts /usr/share/doc/${stem}[0-9]*/copyright)
  string(APPEND licences "\n==== ${soname}\n")
  foreach(text ${texts})
    file(READ ${text} words)
    string(APPEND licences "${words}")
  endforeach()
endforeach()
file(WRITE ${folder}/LICENCES.txt "${licences}")
