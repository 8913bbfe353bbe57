// Packing of weights for the host's own GEMM.
#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "kernels/gemm/tile_kernel.hpp"
#include "kernels/gemm/tiled.hpp"

namespace rocm_sd::tiled {
namespace {

// Calls visit(packed index, plain index or -1 for padding) for every element of one panel.
template <class Visit>
void for_each_element(const Layout& l, int64_t panel, const Visit& visit) {
  const int64_t channels = l.c1 + l.c2;
  std::vector<int64_t> output(static_cast<size_t>(l.columns));
  for (int j = 0; j < l.columns; ++j) output[j] = l.output_at(panel, j);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t t = 0; t < l.taps; ++t) {
      const int64_t row = c < l.c1 ? t * l.c1 + c : l.taps * l.c1 + t * l.c2 + (c - l.c1);
      // Paired, row 2i + b of column j is at 2 (i columns + j) + b of the panel.
      const int64_t first = panel * l.depth() * l.columns;
      const int64_t packed = first + (l.paired ? row / 2 * 2 * l.columns + row % 2 : row * l.columns);
      for (int j = 0; j < l.columns; ++j)
        visit(packed + (l.paired ? 2 * j : j), output[j] < 0 ? -1 : (output[j] * channels + c) * l.taps + t);
    }
}

template <class T>
void copy_in(const Layout& l, const T* plain, T* packed) {
#pragma omp parallel for schedule(static)
  for (int64_t panel = 0; panel < l.panels(); ++panel)
    for_each_element(l, panel, [&](int64_t to, int64_t from) { packed[to] = from < 0 ? T{} : plain[from]; });
}

template <class T>
void copy_out(const Layout& l, const T* packed, T* plain) {
#pragma omp parallel for schedule(static)
  for (int64_t panel = 0; panel < l.panels(); ++panel)
    for_each_element(l, panel, [&](int64_t from, int64_t to) {
      if (to >= 0) plain[to] = packed[from];
    });
}

class TiledPack final : public Weight::Pack {
 public:
  TiledPack(const Tensor& plain, const Layout& layout)
      : layout_(layout),
        shape_(plain.shape()),
        data_(make_tensor(host_device(), {layout.panels(), layout.depth(), layout.columns}, plain.dtype())) {
    assert(plain.is_contiguous() && plain.numel() == layout.outputs * layout.depth());
    if (plain.dtype() == DType::kF32)
      copy_in(layout_, plain.as<float>(), data_.as<float>());
    else
      copy_in(layout_, plain.as<uint16_t>(), data_.as<uint16_t>());
  }
  size_t bytes() const override { return data_.bytes(); }
  Tensor unpack() const override {
    Tensor plain = make_tensor(host_device(), shape_, data_.dtype());
    if (plain.dtype() == DType::kF32)
      copy_out(layout_, data_.as<float>(), plain.as<float>());
    else
      copy_out(layout_, data_.as<uint16_t>(), plain.as<uint16_t>());
    return plain;
  }
  const void* data() const { return data_.data(); }
  DType dtype() const { return data_.dtype(); }

 private:
  Layout layout_;
  Shape shape_;
  Tensor data_;
};

}  // namespace

int64_t Layout::panels() const {
  const int64_t useful = gated ? outputs / 2 : outputs;
  return (useful + useful_columns() - 1) / useful_columns();
}

int64_t Layout::output_at(int64_t panel, int column) const {
  const int half = useful_columns();
  const int64_t useful = gated ? outputs / 2 : outputs;
  const int64_t index = panel * half + column % half;
  if (index >= useful) return -1;
  return column < half ? index : useful + index;
}

std::string Layout::key() const {
  return fmt::format("tiled {} of {}+{}{}{}", columns, c1, c2, gated ? " gated" : "",
                     paired ? " paired" : "");
}

Layout layout_for(DType dtype, int64_t outputs, int64_t c1, int64_t c2, int64_t taps, bool gated) {
  const TileKernels& kernels = tile_kernels();
  const bool paired = dtype == DType::kBF16 && host_has_bf16() && c1 % 2 == 0 && c2 % 2 == 0;
  // A gated panel needs a vector per half, which the narrow one has not.
  const bool narrow = !gated && outputs <= kernels.wide / 2;
  return {outputs, c1, c2, taps, narrow ? kernels.narrow : kernels.wide, gated, paired};
}

std::shared_ptr<const Weight::Pack> pack_plain(const Tensor& plain, const Layout& layout) {
  return std::make_shared<TiledPack>(plain, layout);
}

std::shared_ptr<const Weight::Pack> pack(const Weight& weight, const Layout& layout) {
  if (!weight.is_stored_short())
    return weight.packed(layout.key(), [&](const Tensor& plain) { return pack_plain(plain, layout); });
  return weight.packed_as_stored(concat(layout.key(), " in ", weight.stored_as()), [&](const Tensor& plain) {
    return pack_plain(converted(plain, weight.stored_as()), layout);
  });
}

const void* packed_data(const Weight::Pack& pack) { return dynamic_cast<const TiledPack&>(pack).data(); }
DType packed_dtype(const Weight::Pack& pack) { return dynamic_cast<const TiledPack&>(pack).dtype(); }

}  // namespace rocm_sd::tiled
