// What PyTorch sees: schemas, and the kernels for the CPU and for CUDA (ROCm's PyTorch has that key too).
// Fake and autograd functions are Python's (python/rocm_sd_ops/_register.py).
#include <torch/csrc/stable/ops.h>

#include "kernels/choice_record.hpp"
#include "pytorch_integration/engine_models.hpp"
#include "pytorch_integration/op_scope.hpp"
#include "pytorch_integration/operators.hpp"
#include "pytorch_integration/packs.hpp"

namespace rocm_sd::torch_ops {
namespace {

std::unique_ptr<Explanation>& kept_explanation() {
  thread_local std::unique_ptr<Explanation> kept;
  return kept;
}
std::unique_ptr<ChoiceRecord>& kept_record() {
  thread_local std::unique_ptr<ChoiceRecord> kept;
  return kept;
}

// begin: operators of this thread choose and do not run; else ends that and returns the choices, one a line.
std::string explain(bool begin) {
  std::string text;
  if (kept_record())
    for (const std::string& line : kept_record()->lines()) text += line + "\n";
  if (explanation()) text += explanation()->text;
  kept_record().reset();
  kept_explanation().reset();
  explanation() = nullptr;
  if (!begin) return text;
  kept_record() = std::make_unique<ChoiceRecord>();
  kept_explanation() = std::make_unique<Explanation>();
  explanation() = kept_explanation().get();
  return "";
}

std::string fallbacks() { return fallbacks_so_far(); }
bool enable_kernels(bool enabled) { return set_kernels_enabled(enabled); }
int64_t pack_new() { return new_pack(); }
int64_t pack_drop(int64_t id) {
  drop_pack(id);
  return 0;
}

int64_t engine_drop(int64_t id) {
  drop_engine_model(id);
  return 0;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(rocm_sd, m) {
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor? mask=None, float? scale=None, bool causal=False)"
      " -> Tensor");
  m.def("vae_attention(Tensor q, Tensor k, Tensor v, float? scale=None) -> Tensor");
  m.def(
      "group_norm_silu(Tensor x, int groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05,"
      " bool silu=True, Tensor? x2=None) -> Tensor");
  m.def("layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor");
  m.def(
      "layer_norm_residual(Tensor x, Tensor residual, Tensor? weight=None, Tensor? bias=None,"
      " float eps=1e-05) -> (Tensor, Tensor)");
  m.def("geglu(Tensor x) -> Tensor");
  m.def(
      "linear_epilogue(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None,"
      " str act=\"none\", bool geglu=False, int pack=0) -> Tensor");
  m.def(
      "conv2d_epilogue(Tensor x, Tensor weight, Tensor? bias=None, int stride=1, int[] padding=[0,0,0,0],"
      " Tensor? channel_shift=None, Tensor? residual=None, str act=\"none\", Tensor? x2=None, int pack=0)"
      " -> Tensor");
  m.def("upsample2x_conv(Tensor x, Tensor weight, Tensor? bias=None, int padding=1, int pack=0) -> Tensor");
  m.def(
      "scheduler_step(Tensor sample, Tensor model_output, float sample_scale, float output_scale,"
      " float guidance=1.0, Tensor? noise=None, float noise_scale=0.0, Tensor? previous=None,"
      " float previous_scale=0.0) -> Tensor");
  m.def("run_op(Tensor[] inputs, str op, str problem) -> Tensor");
  m.def("_op_result(str op, str problem) -> str");
  m.def("_doctor() -> str");
  m.def("_explain(bool begin) -> str");
  m.def("_fallbacks() -> str");
  m.def("_set_kernels_enabled(bool enabled) -> bool");
  m.def("_new_pack() -> int");
  m.def("_drop_pack(int id) -> int");
  m.def("_new_engine_unet(Tensor[] tensors, str names, str config) -> int");
  m.def("_new_engine_vae(Tensor[] tensors, str names, str config, str half) -> int");
  m.def("_drop_engine_model(int id) -> int");
  m.def(
      "_engine_unet(int id, Tensor sample, Tensor timestep, Tensor text, Tensor? text_embeds, Tensor? "
      "time_ids,"
      " Tensor? guidance, bool same_text, int mode=0) -> Tensor");
  m.def("_engine_vae(int id, Tensor x, int bands) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(rocm_sd, CompositeExplicitAutograd, m) {
  m.impl("_op_result", TORCH_BOX(&op_result));
  m.impl("_doctor", TORCH_BOX(&doctor_report));
  m.impl("_explain", TORCH_BOX(&explain));
  m.impl("_fallbacks", TORCH_BOX(&fallbacks));
  m.impl("_set_kernels_enabled", TORCH_BOX(&enable_kernels));
  m.impl("_new_pack", TORCH_BOX(&pack_new));
  m.impl("_drop_pack", TORCH_BOX(&pack_drop));
  m.impl("_new_engine_unet", TORCH_BOX(&new_engine_unet));
  m.impl("_new_engine_vae", TORCH_BOX(&new_engine_vae));
  m.impl("_drop_engine_model", TORCH_BOX(&engine_drop));
  m.impl("_engine_unet", TORCH_BOX(&engine_unet));
  m.impl("_engine_vae", TORCH_BOX(&engine_vae));
}

#define ROCM_SD_TORCH_KERNELS(m)                                  \
  m.impl("attention", TORCH_BOX(&attention));                     \
  m.impl("vae_attention", TORCH_BOX(&vae_attention));             \
  m.impl("group_norm_silu", TORCH_BOX(&group_norm_silu));         \
  m.impl("layer_norm", TORCH_BOX(&layer_norm));                   \
  m.impl("layer_norm_residual", TORCH_BOX(&layer_norm_residual)); \
  m.impl("geglu", TORCH_BOX(&geglu));                             \
  m.impl("linear_epilogue", TORCH_BOX(&linear_epilogue));         \
  m.impl("conv2d_epilogue", TORCH_BOX(&conv2d_epilogue));         \
  m.impl("upsample2x_conv", TORCH_BOX(&upsample2x_conv));         \
  m.impl("scheduler_step", TORCH_BOX(&scheduler_step));           \
  m.impl("run_op", TORCH_BOX(&run_op))

STABLE_TORCH_LIBRARY_IMPL(rocm_sd, CPU, m) { ROCM_SD_TORCH_KERNELS(m); }
STABLE_TORCH_LIBRARY_IMPL(rocm_sd, CUDA, m) { ROCM_SD_TORCH_KERNELS(m); }

}  // namespace rocm_sd::torch_ops
