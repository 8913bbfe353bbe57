#include "pipeline/batch_room.hpp"

#include <algorithm>

#include "pipeline/row_stage.hpp"

namespace rocm_sd {

int BatchRoom::images(int most) const {
  int out = 1;
  for (int n = 2; n <= most; ++n) {
    const int64_t rows = n * rows_of_image;
    int64_t held = 1;  // persistent tensors have room for a power of two
    while (held < rows) held *= 2;
    const double arena =
        std::max(arena_of_row * static_cast<double>(padded_rows(rows)), static_cast<double>(others));
    const double all = static_cast<double>(weights) + arena + buffers_of_row * static_cast<double>(held);
    if (all > static_cast<double>(available)) return out;
    out = n;
  }
  return out;
}

}  // namespace rocm_sd
