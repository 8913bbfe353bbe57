#include "models/token_merging.hpp"

#include <algorithm>

#include "kernels/elementwise/elementwise.hpp"

namespace rocm_sd {

int64_t TokenMerge::merged(const TokenGrid& grid) const {
  if (grid.height < least_height || grid.width < least_width || grid.destinations() == 0) return 0;
  return std::min(static_cast<int64_t>(static_cast<double>(grid.tokens()) * ratio), grid.sources());
}

Tensor match_tokens(Exec& ex, const Tensor& x, const TokenGrid& grid, int64_t merged, DType dtype) {
  const int64_t images = x.dim(0), kept = grid.destinations(), sources = grid.sources();
  if (ex.device().kind() == DeviceKind::kHost) dtype = DType::kF32;
  const Tensor unit = unit_tokens(ex, x.dtype() == DType::kF32 ? x : cast(ex, x, dtype), grid, dtype);
  const Tensor matches = ex.alloc({images, sources, 2}, DType::kF32);
  for (int64_t b = 0; b < images; ++b) {  // the similarities of one image at a time
    const Tensor own = unit.narrow(0, b, 1).reshape({grid.tokens(), x.dim(2)});
    const Tensor similarities =
        product_of_rows(ex, own.narrow(0, kept, sources), own.narrow(0, 0, kept));  // [sources,kept]
    copy_into(ex, row_argmax(ex, similarities), matches.narrow(0, b, 1));
  }
  return token_places(ex, matches, grid, merged);
}

}  // namespace rocm_sd
