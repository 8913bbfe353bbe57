// product_of_rows: linear with a matrix that the same forward made, which its kernels on GPUs take as it is.
// The host's linear keeps packs of its weights; here the matrix is packed by each run, into oneDNN's layout.
#include <cstring>

#include "kernels/gemm/linear.hpp"
#include "kernels/onednn.hpp"
#include "kernels/problem.hpp"
#include "kernels/token_merge/token_merge.hpp"

namespace rocm_sd {
namespace {

Tensor multiply_on_host(Exec& ex, const Tensor& a, const Tensor& b) {
  const int64_t rows = a.dim(0), depth = a.dim(1), columns = b.dim(0);
  const auto product =
      onednn::product({.height = rows, .channels = depth, .out_channels = columns, .dtype = DType::kF32});
  auto places = std::make_shared<const onednn::WeightPlaces>(product->weight_places());
  const Tensor y = ex.alloc({rows, columns}, DType::kF32);
  const Tensor packed = ex.alloc({static_cast<int64_t>(places->bytes)}, DType::kU8);
  const Tensor scratch =
      ex.alloc({std::max<int64_t>(static_cast<int64_t>(product->scratchpad_bytes()), 1)}, DType::kU8);
  const OpInfo info{"product_of_rows", concat("onednn f32 ", rows, "x", columns, "x", depth),
                    2.0 * static_cast<double>(rows * depth) * static_cast<double>(columns),
                    static_cast<double>(a.bytes() + b.bytes() + y.bytes())};
  ex.launch(info,
            [product, places, depth, columns, from_a = a.data(), from_b = static_cast<const float*>(b.data()),
             to = y.data(), pack = static_cast<float*>(packed.data()), scratchpad = scratch.data()] {
              if (places->bytes > sizeof(float) * static_cast<size_t>(depth * columns))  // padded by zeros
                std::memset(pack, 0, places->bytes);
#pragma omp parallel for schedule(static)
              for (int64_t j = 0; j < columns; ++j)
                for (int64_t i = 0; i < depth; ++i)
                  pack[places->rows[static_cast<size_t>(i)] + places->columns[static_cast<size_t>(j)]] =
                      from_b[j * depth + i];
              product->execute({.src = from_a, .weights = pack, .dst = to, .scratchpad = scratchpad});
            });
  return y;
}

}  // namespace

Tensor product_of_rows(Exec& ex, const Tensor& a, const Tensor& b) {
  require_activation_type(a, "product_of_rows", "a");
  require_contiguous(a, "product_of_rows", "a");
  require_contiguous(b, "product_of_rows", "b");
  require(a.rank() == 2 && b.rank() == 2 && a.dim(1) == b.dim(1) && a.dtype() == b.dtype() && a.numel() > 0 &&
              b.numel() > 0,
          "product_of_rows: expected a [M,K] and b [N,K] of one type, got ", a.shape(), " ", a.dtype(),
          " and ", b.shape(), " ", b.dtype());
  if (ex.device().kind() == DeviceKind::kHost) {
    require<UsageError>(a.dtype() == DType::kF32, "product_of_rows: the host takes f32, got ", a.dtype());
    return multiply_on_host(ex, a, b);
  }
  StoredWeight stored(b);
  stored.made_in_run = true;
  Epilogue epilogue;
  if (a.dtype() == DType::kBF16) epilogue.dtype = DType::kF32;
  return linear(ex, a, LinearWeight{Weight(std::move(stored)), std::nullopt}, epilogue);
}

}  // namespace rocm_sd
