#include "analysis/predict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "analysis/modelled_times.hpp"
#include "analysis/paper_gpu.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "tuning/choices.hpp"

namespace rocm_sd {
namespace {

bool is_matrix_op(std::string_view op) {
  return op == "attention" || op == "conv2d" || op == "linear" || op == "linear_geglu";
}

// The stage's time by the time model, or 0 where it knows too little of it.
double modelled_ms(const PlannedStage& stage, const StageBound& bound, const ModelledTimes& times) {
  const std::map<std::string, double> ops = modelled_by_op(stage, bound, times);
  return std::accumulate(ops.begin(), ops.end(), 0.0,
                         [](double sum, const auto& op) { return sum + op.second; });
}

double number_field(const nlohmann::json& json, const char* name, std::string_view what, double least,
                    double most) {
  require<FormatError>(json.contains(name) && json[name].is_number(), what, ": \"", name,
                       "\" must be a number");
  const double value = json[name].get<double>();
  require<FormatError>(value >= least && value <= most, what, ": \"", name, "\" is ", value, ", expected ",
                       least, " to ", most);
  return value;
}

std::string text_field(const nlohmann::json& json, const char* name, std::string_view what) {
  require<FormatError>(
      json.contains(name) && json[name].is_string() && !json[name].get_ref<const std::string&>().empty(),
      what, ": \"", name, "\" must be a text");
  return printable(json[name].get<std::string>(), 64);
}

}  // namespace

StageBound bound_stage(const GpuProduct& gpu, const PlannedStage& stage, DType dtype,
                       const KernelCounts& counts) {
  StageBound out{stage.name, stage.runs, stage.weight_bytes, stage.arena_bytes, 0, {}};
  std::map<std::string, OpBound> ops;
  for (const auto& [problem, work] : stage.problems) {
    const bool half = is_matrix_op(work.op) && dtype != DType::kF32;
    const double rate = peak_rate(gpu, half ? RateType::kF16 : RateType::kF32);
    const std::string kernel = half ? kernel_of_problem(problem, dtype) : std::string();
    const double compute = work.flops * multiplied_share(kernel) / rate * 1e3;
    const double memory = work.bytes / (gpu.bandwidth * 1e9) * 1e3;
    const auto counted = counts.kernels.find(kernel);
    const bool known = counted != counts.kernels.end();
    const double issue = known ? compute / counted->second.matrix_share : compute;
    OpBound& op = ops[work.op];
    op.op = work.op;
    op.launches += work.launches;
    op.flops += work.flops;
    op.bytes += work.bytes;
    op.compute_ms += compute;
    op.memory_ms += memory;
    op.issue_ms += issue;
    op.counted_flops += known ? work.flops : 0;
    op.bound_ms += std::max(issue, memory);  // launches of one problem are alike
  }
  for (const auto& [name, op] : ops) {
    out.ops.push_back(op);
    out.bound_ms += op.bound_ms;
  }
  std::stable_sort(out.ops.begin(), out.ops.end(),
                   [](const OpBound& a, const OpBound& b) { return a.bound_ms > b.bound_ms; });
  return out;
}

ModelBound predict(const GpuProduct& gpu, const KnownModel& model, const PictureShape& shape, int steps,
                   DType dtype) {
  require<UsageError>(peak_rate(gpu, RateType::kF16) > 0 && gpu.bandwidth > 0, gpu.name, " (", gpu.arch,
                      "): no rates are known for this architecture");
  GpuProduct roomy = gpu;  // the plan must come out where the model does not fit: that is an answer too
  roomy.memory_gb = std::max(roomy.memory_gb, 1024.0);
  const auto device = make_paper_gpu(roomy);
  ModelBound out{.gpu = gpu, .model = model.name, .dtype = fmt::format("{}", dtype), .shape = shape};
  const KernelCounts counts = kernel_counts_for(gpu).value_or(KernelCounts{});
  out.counted = counts.target;
  const ModelledTimes times =
      dtype == DType::kF16 ? modelled_times_for(gpu).value_or(ModelledTimes{}) : ModelledTimes{};
  bool modelled = !times.card.empty();
  uint64_t largest = 0;
  // A table's choices may be kernels that a GPU on paper cannot plan: clusters, TMA's tiles.
  const tuning::TuningScope untuned(nullptr);
  for (const PlannedStage& stage : plan_model(*device, model, shape, steps, dtype)) {
    out.stages.push_back(bound_stage(gpu, stage, dtype, counts));
    StageBound& bound = out.stages.back();
    if (modelled) bound.modelled_ms = modelled_ms(stage, bound, times);
    modelled = modelled && bound.modelled_ms > 0;
    out.modelled_picture_ms += bound.runs * bound.modelled_ms;
    if (stage.name == "unet") out.modelled_step_ms = bound.modelled_ms;
    out.picture_ms += bound.runs * bound.bound_ms;
    if (stage.name == "unet") out.denoise_per_second = 1e3 / bound.bound_ms;
    if (stage.name != "prepare") out.peak_bytes += stage.weight_bytes;  // the UNet's, counted once
    largest = std::max(largest, stage.arena_bytes);
  }
  if (modelled) {
    out.modelled_error = times.error;
    out.modelled_by = times.target;
  } else {
    out.modelled_picture_ms = out.modelled_step_ms = 0;
  }
  out.peak_bytes += largest;
  out.fits = static_cast<double>(out.peak_bytes) <= gpu.memory_gb * (1 << 30);
  return out;
}

GpuProduct gpu_product_from_json(const nlohmann::json& json, std::string_view what) {
  require<FormatError>(json.is_object(), what, ": expected an object that describes a GPU");
  GpuProduct gpu;
  gpu.name = text_field(json, "name", what);
  gpu.arch = text_field(json, "arch", what);
  gpu.compute_units = static_cast<int>(number_field(json, "compute_units", what, 1, 100'000));
  gpu.gigahertz = number_field(json, "gigahertz", what, 0.01, 100);
  gpu.memory_gb = number_field(json, "memory_gb", what, 0.1, 100'000);
  gpu.bandwidth = number_field(json, "bandwidth_gb_per_s", what, 1, 1e6);
  if (json.contains("l2_mb")) gpu.l2_mb = number_field(json, "l2_mb", what, 0, 1e6);
  if (json.contains("last_level_mb")) gpu.last_level_mb = number_field(json, "last_level_mb", what, 0, 1e6);
  return gpu;
}

nlohmann::ordered_json prediction_json(const ModelBound& b) {
  nlohmann::ordered_json out = {{"kind", "bound"},
                                {"gpu",
                                 {{"name", b.gpu.name},
                                  {"arch", b.gpu.arch},
                                  {"f16_tflops", peak_rate(b.gpu, RateType::kF16) / 1e12},
                                  {"f32_tflops", peak_rate(b.gpu, RateType::kF32) / 1e12},
                                  {"bandwidth_gb_per_s", b.gpu.bandwidth},
                                  {"memory_gb", b.gpu.memory_gb}}},
                                {"model", b.model},
                                {"dtype", b.dtype},
                                {"counted_target", b.counted},
                                {"width", b.shape.width},
                                {"height", b.shape.height},
                                {"batch", b.shape.batch},
                                {"guidance", b.shape.guidance},
                                {"picture_ms", b.picture_ms},
                                {"denoise_per_second", b.denoise_per_second},
                                {"modelled_picture_ms", b.modelled_picture_ms},
                                {"modelled_step_ms", b.modelled_step_ms},
                                {"modelled_error", b.modelled_error},
                                {"modelled_by", b.modelled_by},
                                {"peak_bytes", b.peak_bytes},
                                {"fits", b.fits}};
  out["stages"] = nlohmann::ordered_json::array();
  for (const StageBound& s : b.stages) {
    nlohmann::ordered_json stage = {{"stage", s.stage},
                                    {"runs", s.runs},
                                    {"bound_ms", s.bound_ms},
                                    {"modelled_ms", s.modelled_ms},
                                    {"weight_bytes", s.weight_bytes},
                                    {"arena_bytes", s.arena_bytes}};
    stage["ops"] = nlohmann::ordered_json::array();
    for (const OpBound& op : s.ops)
      stage["ops"].push_back({{"op", op.op},
                              {"launches", op.launches},
                              {"flops", op.flops},
                              {"bytes", op.bytes},
                              {"compute_ms", op.compute_ms},
                              {"issue_ms", op.issue_ms},
                              {"counted_flops", op.counted_flops},
                              {"memory_ms", op.memory_ms},
                              {"bound_ms", op.bound_ms}});
    out["stages"].push_back(stage);
  }
  return out;
}

std::string prediction_text(const ModelBound& b) {
  std::string text = fmt::format(
      "{} ({}): {:.1f} TFLOP/s in f16, {:.0f} GB/s, {:.0f} GB\n{} {} x {}, batch {}{}, {}\n", b.gpu.name,
      b.gpu.arch, peak_rate(b.gpu, RateType::kF16) / 1e12, b.gpu.bandwidth, b.gpu.memory_gb, b.model,
      b.shape.width, b.shape.height, b.shape.batch, b.shape.guidance ? " with guidance" : "", b.dtype);
  for (const StageBound& s : b.stages) {
    const std::string modelled = s.modelled_ms > 0 ? fmt::format("{:.3f} ms modelled, ", s.modelled_ms) : "";
    text += fmt::format("\n{}: {} x {}{:.3f} ms bound, weights {:.0f} MB, arena {:.0f} MB\n", s.stage, s.runs,
                        modelled, s.bound_ms, static_cast<double>(s.weight_bytes) / 1e6,
                        static_cast<double>(s.arena_bytes) / 1e6);
    text += fmt::format("  {:<18}{:>9}{:>11}{:>9}{:>12}{:>11}{:>12}{:>11}{:>8}\n", "op", "launches", "GFLOP",
                        "GB", "compute ms", "issue ms", "memory ms", "bound ms", "share");
    for (const OpBound& op : s.ops)
      text += fmt::format("  {:<18}{:>9}{:>11.2f}{:>9.3f}{:>12.4f}{:>11.4f}{:>12.4f}{:>11.4f}{:>7.1f}%\n",
                          op.op, op.launches, op.flops / 1e9, op.bytes / 1e9, op.compute_ms, op.issue_ms,
                          op.memory_ms, op.bound_ms, s.bound_ms > 0 ? 100 * op.bound_ms / s.bound_ms : 0);
  }
  text += fmt::format(
      "\nNo picture in less than {:.1f} ms, no more than {:.1f} UNet runs a second; {:.2f} GB at most{}.\n"
      "A bound from peak rates and bandwidth, not a speed: nothing was run. {}\n",
      b.picture_ms, b.denoise_per_second, static_cast<double>(b.peak_bytes) / 1e9,
      b.fits ? "" : ", more than the GPU has: weights are streamed or the VAE is decoded in bands",
      b.counted.empty() ? "No kernel was counted for this architecture: issue is compute."
                        : concat("Issue: the main loops that the emulator counted on ", b.counted,
                                 " at the matrix share that their instructions allow."));
  if (b.modelled_step_ms > 0)
    text += fmt::format(
        "Modelled from the machine code for {} (docs/explanation/time-model.md), not measured: a picture in "
        "{:.2f} s, {:.2f} UNet runs a second{}.\n",
        b.modelled_by, b.modelled_picture_ms / 1e3, 1e3 / b.modelled_step_ms,
        b.modelled_error > 0
            ? fmt::format("; the model was {:.0f} % off published times, as a median", 100 * b.modelled_error)
            : "");
  return text;
}

std::string prediction_table(const std::vector<ModelBound>& bounds) {
  std::string text =
      fmt::format("{:<18}{:<9}{:>9}{:>8}{:>12}{:>12}{:>12}{:>11}{:>9}{:>10}{:>9}\n", "GPU", "arch", "TFLOP/s",
                  "GB/s", "UNet ms", "UNet runs/s", "VAE ms", "picture s", "GB", "model ms", "model s");
  for (const ModelBound& b : bounds) {
    double unet = 0, vae = 0;
    for (const StageBound& s : b.stages)
      (s.stage == "unet"  ? unet
       : s.stage == "vae" ? vae
                          : unet) += s.stage == "unet" || s.stage == "vae" ? s.bound_ms : 0;
    text += fmt::format(
        "{:<18}{:<9}{:>9.1f}{:>8.0f}{:>12.3f}{:>12.2f}{:>12.3f}{:>11.4f}{:>8.2f}{}{}\n", b.gpu.name,
        b.gpu.arch, peak_rate(b.gpu, RateType::kF16) / 1e12, b.gpu.bandwidth, unet, b.denoise_per_second, vae,
        b.picture_ms / 1e3, static_cast<double>(b.peak_bytes) / 1e9, b.fits ? " " : "*",
        b.modelled_step_ms > 0
            ? fmt::format("{:>10.2f}{:>9.2f}", b.modelled_step_ms, b.modelled_picture_ms / 1e3)
            : "");
  }
  return text +
         "Bounds from peak rates and bandwidth, not speeds: nothing was run. *: more than the GPU's "
         "memory.\nmodel: a UNet run and a picture by the time model, not measured "
         "(docs/explanation/time-model.md).\n";
}

}  // namespace rocm_sd
