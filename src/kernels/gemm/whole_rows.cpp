#include "kernels/gemm/whole_rows.hpp"

#include <algorithm>
#include <vector>

#include "kernels/conv/conv2d_parts.hpp"
#include "kernels/family/gemm_map.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/select.hpp"

namespace rocm_sd {
namespace {

// As the weight is stored: in 8 bits, too, whose scales are of rows.
class WholeRows final : public Weight::Pack {
 public:
  // Rows of `whole` elements. of: the weight's, for its type and its scales.
  WholeRows(Device& device, const Tensor& values, int64_t whole, StoredWeight of)
      : device_(device), shape_(values.shape()) {
    const size_t from = row_bytes(values.dtype(), shape_[1]), to = row_bytes(values.dtype(), whole);
    std::vector<char> plain(values.bytes()), rows(static_cast<size_t>(shape_[0]) * to, 0);
    device.copy_to_host(plain.data(), values.data(), plain.size());
    for (size_t row = 0; row < static_cast<size_t>(shape_[0]); ++row)
      std::copy_n(plain.data() + row * from, from, rows.data() + row * to);
    rows_ = make_tensor(device, {shape_[0], whole}, values.dtype());
    device.copy_to_device(rows_.data(), rows.data(), rows.size());
    of.values = rows_;
    weight_ = Weight(std::move(of));
  }
  size_t bytes() const override { return rows_.bytes(); }
  Tensor unpack() const override {
    const size_t to = row_bytes(rows_.dtype(), shape_[1]), from = row_bytes(rows_.dtype(), rows_.dim(1));
    const Tensor out = make_tensor(device_, shape_, rows_.dtype());
    std::vector<char> rows(rows_.bytes()), plain(out.bytes());
    device_.copy_to_host(rows.data(), rows_.data(), rows.size());
    for (size_t row = 0; row < static_cast<size_t>(shape_[0]); ++row)
      std::copy_n(rows.data() + row * from, to, plain.data() + row * to);
    device_.copy_to_device(out.data(), plain.data(), plain.size());
    return out;
  }
  const Weight& weight() const { return weight_; }

 private:
  static size_t row_bytes(DType dtype, int64_t elements) {
    return static_cast<size_t>(elements) * dtype_size(dtype);
  }
  Device& device_;
  Shape shape_;
  Tensor rows_;
  Weight weight_;  // of them
};

template <class T>
Tensor padded(Exec& ex, const Tensor& x) {
  const int64_t in = x.dim(-1);
  const Tensor rows = conv_whole_pieces<T>(ex, x.reshape({1, 1, x.numel() / in, in}));
  Shape shape = x.shape();
  shape[-1] = rows.dim(3);
  return rows.reshape(shape);
}

}  // namespace

bool linear_wants_whole_rows(const Exec& ex, const Tensor& x, const LinearWeight& w) {
  const int64_t in = x.dim(-1);
  if (ex.device().kind() == DeviceKind::kHost || in == 0 || x.numel() / in <= kGemvRows) return false;
  if (conv_padded_channels(in, x.dtype()) == in) return false;
  const std::string forced = forced_impl("linear");
  return x.is_contiguous() && x.dtype() == w.weight.dtype() && !w.weight.is_stored_short() &&
         (forced.empty() || forced.starts_with("gpu"));
}

Tensor with_whole_rows(Exec& ex, const Tensor& x) {
  switch (x.dtype()) {
    case DType::kF32: return padded<float>(ex, x);
    case DType::kBF16: return padded<Bf16>(ex, x);
    default: return padded<Half>(ex, x);
  }
}

LinearWeight with_whole_rows(Exec& ex, const LinearWeight& w) {
  const int64_t whole = conv_padded_channels(w.weight.dim(1), w.weight.dtype());
  const StoredWeight of({}, w.weight.scales(), w.weight.dtype(), w.weight.products());
  const auto make = [&](const Tensor& values) {
    return std::make_shared<WholeRows>(ex.device(), values, whole, of);
  };
  const auto pack = w.weight.packed_as_stored("whole rows", make, true);
  return {static_cast<const WholeRows&>(*pack).weight(), w.bias};
}

}  // namespace rocm_sd
