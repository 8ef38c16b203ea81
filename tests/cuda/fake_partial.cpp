// SPDX-License-Identifier: BSD-3-Clause
// fake_partial.cpp — libraries with most functions missing: a driver and an NVRTC that have
// their version and nothing else.
extern "C" {

int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}

}  // extern "C"
