// SPDX-License-Identifier: BSD-3-Clause
// fake_partial.cpp — libraries of which most is missing: a driver and an NVRTC that tell their
// version and nothing else.
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
