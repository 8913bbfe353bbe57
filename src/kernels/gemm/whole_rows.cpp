#include "kernels/gemm/whole_rows.hpp"

#include <algorithm>
#include <vector>

#include "kernels/conv/conv2d_parts.hpp"
#include "kernels/family/gemm_map.hpp"
#include "kernels/gpu_launch.hpp"
#include "kernels/select.hpp"

namespace rocm_sd {
namespace {

class WholeRows final : public Weight::Pack {
 public:
  WholeRows(Device& device, const Tensor& plain) : device_(device), shape_(plain.shape()) {
    const int64_t out = shape_[0], in = shape_[1], whole = conv_padded_channels(in, plain.dtype());
    const std::vector<float> from = to_floats(device, plain);
    std::vector<float> to(static_cast<size_t>(out * whole), 0.0f);
    for (int64_t row = 0; row < out; ++row)
      std::copy_n(from.begin() + row * in, in, to.begin() + row * whole);
    weight_ = Weight(tensor_from(device, {out, whole}, to.data(), plain.dtype()));
  }
  size_t bytes() const override { return weight_.stored_bytes(); }
  Tensor unpack() const override {
    const Tensor values = weight_.stored().values;
    const std::vector<float> from = to_floats(device_, values);
    std::vector<float> to(static_cast<size_t>(shape_.numel()));
    for (int64_t row = 0; row < shape_[0]; ++row)
      std::copy_n(from.begin() + row * values.dim(1), shape_[1], to.begin() + row * shape_[1]);
    return tensor_from(device_, shape_, to.data(), values.dtype());
  }
  const Weight& weight() const { return weight_; }

 private:
  Device& device_;
  Shape shape_;
  Weight weight_;
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
  const std::string forced = forced_impl("linear");
  return conv_padded_channels(in, x.dtype()) != in && x.is_contiguous() && x.dtype() == w.weight.dtype() &&
         w.weight.stored_as() == w.weight.dtype() && (forced.empty() || forced.starts_with("gpu"));
}

Tensor with_whole_rows(Exec& ex, const Tensor& x) {
  switch (x.dtype()) {
    case DType::kF32: return padded<float>(ex, x);
    case DType::kBF16: return padded<Bf16>(ex, x);
    default: return padded<Half>(ex, x);
  }
}

LinearWeight with_whole_rows(Exec& ex, const LinearWeight& w) {
  const auto make = [&](const Tensor& plain) { return std::make_shared<WholeRows>(ex.device(), plain); };
  const auto pack = w.weight.packed("whole rows", make, true);
  return {static_cast<const WholeRows&>(*pack).weight(), w.bias};
}

}  // namespace rocm_sd
