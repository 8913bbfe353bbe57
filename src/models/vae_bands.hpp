// The VAE in bands of rows: the same result in less memory. A map is never whole and no band is
// looked at alone: convolutions read the neighbours' rows, and group norms use the moments of all bands.
#pragma once

#include <vector>

#include "runtime/exec.hpp"

namespace rocm_sd {

// A feature map [1,H,W,C] in bands of rows, from the top.
struct BandedMap {
  std::vector<Tensor> bands;    // [1,R,W,C] each
  std::vector<int64_t> begins;  // the first row of each, then H

  size_t count() const { return bands.size(); }
  int64_t height() const { return begins.back(); }
};

// x [1,H,W,C] cut into at most `count` bands of nearly the same number of rows, a multiple of `multiple` that
// divides H; copied.
BandedMap cut_into_bands(Exec& ex, const Tensor& x, int64_t count, int64_t multiple = 1);
// The map whole again, [1,H,W,C].
Tensor joined(Exec& ex, const BandedMap& map);

}  // namespace rocm_sd
