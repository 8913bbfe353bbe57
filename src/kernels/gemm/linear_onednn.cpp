// linear by oneDNN's matrix product.
#include <algorithm>
#include <vector>

#include "kernels/gemm/linear_impl.hpp"
#include "kernels/gemm/tile_kernel.hpp"
#include "kernels/onednn.hpp"

namespace rocm_sd {
namespace {

// Rows of a gated product that stand in memory at a time: both halves of 256 rows stay in the last-level
// cache.
constexpr int64_t kGatedRows = 256;

onednn::ProductSpec spec_of(const LinearProblem& p) {
  onednn::ProductSpec spec;
  spec.height = p.rows;
  spec.channels = p.in;
  spec.out_channels = p.out;
  spec.row_stride = p.row_stride;
  spec.dtype = p.dtype();
  spec.dst_dtype = spec.addend_dtype = p.out_dtype();
  spec.bias = p.w.bias.has_value();
  spec.addend = p.epilogue.residual != nullptr;
  spec.act = p.epilogue.act;
  return spec;
}

Tensor scratchpad(Exec& ex, std::initializer_list<const onednn::Product*> products) {
  size_t bytes = 0;
  for (const onednn::Product* product : products)
    if (product) bytes = std::max(bytes, product->scratchpad_bytes());
  return ex.alloc({static_cast<int64_t>(bytes)}, DType::kU8);
}

// Chunks of rows: the product in float, then value * gelu(gate) while it is in cache.
void linear_geglu_onednn(Exec& ex, const LinearProblem& p) {
  onednn::ProductSpec spec = spec_of(p);
  spec.out_channels = 2 * p.out;
  spec.bias = false;  // added by the gate's pass
  spec.dst_dtype = DType::kF32;
  spec.height = std::min(p.rows, kGatedRows);
  const onednn::Prepared main = onednn::prepare(spec, p.w.weight);
  onednn::Prepared rest;
  const int64_t remaining = p.rows % spec.height;
  if (remaining) {
    spec.height = remaining;
    rest = onednn::prepare(spec, p.w.weight);
  }
  const int64_t columns = 2 * p.out, chunk = std::min(p.rows, kGatedRows);
  const Tensor scratch = scratchpad(ex, {main.product.get(), rest.product.get()});
  const Tensor wide = ex.alloc({chunk * columns + 64}, DType::kF32);  // a vector may read past the end
  const Tensor no_bias = ex.alloc({p.w.bias ? 1 : columns + 64}, DType::kF32);
  const float* given_bias = p.w.bias ? p.w.bias->as<float>() : nullptr;
  ex.launch(p.info("onednn"),
            [=, x = static_cast<const char*>(p.x.data()), y = static_cast<char*>(p.y.data()),
             scratchpad = scratch.data(), product = wide.as<float>(), zeros = no_bias.as<float>(),
             rows = p.rows, out = p.out,
             row_bytes = static_cast<size_t>(p.row_stride) * dtype_size(p.dtype()), dtype = p.dtype()] {
              if (!given_bias) std::fill_n(zeros, columns + 64, 0.0f);
              const float* bias = given_bias ? given_bias : zeros;
              for (int64_t first = 0; first < rows; first += chunk) {
                const int64_t count = std::min(chunk, rows - first);
                const onednn::Prepared& run = count == chunk ? main : rest;
                run.product->execute({.src = x + static_cast<size_t>(first) * row_bytes,
                                      .weights = onednn::packed_data(*run.pack),
                                      .dst = product,
                                      .scratchpad = scratchpad});
#pragma omp parallel for schedule(static)
                for (int64_t row = 0; row < count; ++row) {
                  const int64_t at = (first + row) * out;
                  tile_kernels().finish({.tiles = product + row * columns,
                                         .rows = 1,
                                         .columns = static_cast<int>(columns),
                                         .valid_columns = static_cast<int>(out),
                                         .bias = &bias,
                                         .out_offset = &at,
                                         .activation = 0,
                                         .gated = true,
                                         .bf16 = dtype == DType::kBF16,
                                         .residual = nullptr,
                                         .out = y});
                }
              }
            });
}

}  // namespace

Refusal linear_supports_onednn(const Exec& ex, const LinearProblem& p) {
  if (ex.device().kind() != DeviceKind::kHost) return "the tensors are not on the host";
  // The gate's pass reads the bias in full vectors.
  if (p.gated && p.out % 64 != 0) return "a gated width that is not a multiple of 64";
  if (p.mixed_types()) return "a weight of another type than x";
  if (const Refusal refusal = linear_refuses_terms(p)) return refusal;
  return onednn::refuses(p.dtype());
}

void linear_onednn(Exec& ex, const LinearProblem& p) {
  if (p.gated) return linear_geglu_onednn(ex, p);
  const onednn::Prepared run = onednn::prepare(spec_of(p), p.w.weight);
  const Tensor scratch = scratchpad(ex, {run.product.get()});
  const onednn::ProductArgs args{
      .src = p.x.data(),
      .weights = onednn::packed_data(*run.pack),
      .bias = p.w.bias ? p.w.bias->as<float>() : nullptr,
      .addend = p.epilogue.residual ? p.epilogue.residual->data() : nullptr,
      .dst = p.y.data(),
      .scratchpad = scratch.data(),
  };
  ex.launch(p.info("onednn"), [run, args] { run.product->execute(args); });
}

}  // namespace rocm_sd
