// How many images of one size share the UNet's calls within the device's memory.
#pragma once

#include <cstdint>

namespace rocm_sd {

// From the plan of a request by itself, whose step grows with its rows.
struct BatchRoom {
  uint64_t available = 0, weights = 0;  // bytes of the UNet's device
  uint64_t others = 0;                  // bytes of the arena that the text and the VAE need
  double arena_of_row = 0, buffers_of_row = 0;
  int64_t rows_of_image = 1;  // conditions

  // The most images that fit, from 1 to `most`.
  int images(int most) const;
};

}  // namespace rocm_sd
