// Arguments one by one, so that the compiler may ask for them in registers (-amdgpu-kernarg-preload-count).
#include "device.hpp"

KERNEL scaled(const uint* in, uint* out, int n, int factor) {
  const int t = thread_x();
  if (t < n) out[t] = in[t] * factor + 1;
}
