// symmetric_gate: a map plus its shortcut, weighted by the map itself: SPAN's attention without parameters.
// Problem   y[i] = (v[i] + x[i]) * (sigmoid(v[i]) - 1/2)
// Mapping   a thread takes an element, the grid's threads in turn
// Traffic   v once, x once, y once
// Numerics  float, rounded once; the weight as tanh(v / 2) / 2, which loses no bits near 0
// Limits    none
#pragma once

#include "composable_kernels/block.hpp"

namespace rocm_sd {

template <class T>
struct SymmetricGateParams {
  const T* v;  // [size]
  const T* x;  // [size]
  T* y;        // [size]
  int64_t size;
  uint32_t workgroups;  // of the grid
};

template <class Arch, class T>
ROCM_SD_DEVICE void symmetric_gate_body(const SymmetricGateParams<T>& p, const Block<Arch>& block) {
  for (int64_t i = block.first_item(); i < p.size; i += block.item_stride()) {
    const float v = to_float(p.v[i]);
    store(p.y[i], (v + to_float(p.x[i])) * (0.5f * Arch::tanh(0.5f * v)));
  }
}

}  // namespace rocm_sd
