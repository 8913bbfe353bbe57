// linear by the host's own GEMM.
#include "kernels/gemm/linear_impl.hpp"
#include "kernels/gemm/tiled.hpp"

namespace rocm_sd {

Refusal linear_supports_tiled(const Exec& ex, const LinearProblem& p) {
  if (ex.device().kind() != DeviceKind::kHost) return "the tensors are not on the host";
  if (p.dtype() == DType::kF16) return "f16 is not its type";
  return linear_refuses_terms(p);
}

void linear_tiled(Exec& ex, const LinearProblem& p) {
  tiled::Product product;
  product.dtype = p.dtype();
  product.out_dtype = p.out_dtype();
  product.layout = tiled::layout_for(p.dtype(), p.gated ? 2 * p.out : p.out, p.in, 0, 1, p.gated);
  const auto weights = tiled::pack(p.w.weight, product.layout);
  product.weights = tiled::packed_data(*weights);
  product.weight_dtype = tiled::packed_dtype(*weights);
  product.width = product.out_w = p.rows;
  product.source[0] = p.x.data();
  product.pixel_stride[0] = p.row_stride;
  product.out = p.y.data();
  product.out_pixel = p.out;
  product.residual = p.epilogue.residual ? p.epilogue.residual->data() : nullptr;
  product.act = p.epilogue.act;
  product.bias = p.w.bias ? p.w.bias->as<float>() : nullptr;
  const tiled::Plan plan = tiled::plan(product);
  const Tensor workspace = ex.alloc({static_cast<int64_t>(plan.workspace_bytes())}, DType::kU8);
  ex.launch(p.info("tiled"),
            [product, plan, weights, memory = workspace.data()] { tiled::run(product, plan, memory); });
}

}  // namespace rocm_sd
