#include "models/device_factors.hpp"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "runtime/device.hpp"

namespace rocm_sd {
namespace {

constexpr int64_t kRankStep = 32;    // depth of a product's step in most configurations: zeros fill the rest
constexpr int64_t kAlignment = 256;  // of a tensor in the whole, bytes

// One module's place in the whole, in elements.
struct Place {
  const AdapterModule* module = nullptr;
  int64_t rows = 0, columns = 0, rank = 0;  // rank: filled up
  int64_t up = 0, down = 0;
};

// values [rows,rank] -> [rows,filled] in dtype; or, of [rank,rows] values, the same of its transpose.
void lay_out(const std::vector<float>& values, bool transposed, const Place& place, int64_t rows, DType dtype,
             void* to) {
  const int64_t rank = place.module->rank, filled = place.rank;
  std::vector<float> out(static_cast<size_t>(rows * filled), 0.0f);
  constexpr int64_t kBlock = 64;  // rows whose lines of `out` stay in the cache
  for (int64_t begin = 0; begin < rows; begin += kBlock)
    for (int64_t r = 0; r < rank; ++r)
      for (int64_t row = begin; row < std::min(rows, begin + kBlock); ++row)
        out[static_cast<size_t>(row * filled + r)] =
            values[static_cast<size_t>(transposed ? r * rows + row : row * rank + r)];
  convert_elements(out.data(), DType::kF32, to, dtype, rows * filled);
}

}  // namespace

bool is_plain_lora(const AdapterModule& module) {
  return module.kind == AdapterKind::kLora && !module.is_dora() && !module.has("mid");
}

DeviceFactors::DeviceFactors(Device& device, const AdapterFile& file, Component component, DType dtype) {
  std::vector<Place> places;
  int64_t size = 0;
  const auto size_of_element = static_cast<int64_t>(dtype_size(dtype));
  const auto take = [&](int64_t count) {
    const int64_t step = kAlignment / size_of_element;
    return std::exchange(size, size + (count + step - 1) / step * step);
  };
  for (const auto& [target, module] : file.modules(component)) {
    if (!is_plain_lora(module)) continue;
    const Shape &up = file.shape(module, "up"), &down = file.shape(module, "down");
    Place place{&module, up[0], down.numel() / module.rank};
    place.rank = (module.rank + kRankStep - 1) / kRankStep * kRankStep;
    place.up = take(place.rows * place.rank);
    place.down = take(place.columns * place.rank);
    places.push_back(place);
  }
  const auto staged = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(size * size_of_element));
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < places.size(); ++i) {
    try {
      const Place& place = places[i];
      lay_out(file.values(*place.module, "up"), false, place, place.rows, dtype,
              staged.get() + place.up * size_of_element);
      lay_out(file.values(*place.module, "down"), true, place, place.columns, dtype,
              staged.get() + place.down * size_of_element);
    } catch (...) {
#pragma omp critical(rocm_sd_device_factors)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  if (size == 0) return;
  all_ = make_tensor(device, {size}, dtype);
  device.copy_to_device(all_.data(), staged.get(), static_cast<size_t>(size * size_of_element));
  for (const Place& place : places) {
    const auto part = [&](int64_t begin, int64_t rows) {
      return all_.narrow(0, begin, rows * place.rank).reshape({rows, place.rank});
    };
    pairs_[place.module->target] = {part(place.up, place.rows), part(place.down, place.columns)};
  }
}

}  // namespace rocm_sd
