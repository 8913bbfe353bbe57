// The roofline of a model on a GPU that need not be here: no launch can take less than its work at the peak
// rate, nor less than its bytes at the memory's bandwidth (Williams, Waterman and Patterson, "Roofline",
// 2009). Where the emulator has counted the kernel that the plan chose (kernel_counts.hpp), its matrix rate
// is the peak times what matrix instructions can take of that kernel's main loop. A bound, not a speed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/kernel_counts.hpp"
#include "analysis/planned_model.hpp"
#include "base/gpu_products.hpp"

namespace rocm_sd {

struct OpBound {
  std::string op;    // "conv2d"
  int launches = 0;  // a run
  double flops = 0, bytes = 0;
  double compute_ms = 0, memory_ms = 0;  // sums over launches of either limit, at peak rates
  double issue_ms = 0;                   // as compute_ms, with counted kernels at what their loops can issue
  double counted_flops = 0;              // of launches whose kernel was counted
  double bound_ms = 0;                   // sum over launches of the greater of issue and memory
};

struct StageBound {
  std::string stage;  // as PlannedStage
  int runs = 1;
  uint64_t weight_bytes = 0, arena_bytes = 0;
  double bound_ms = 0;       // of one run
  std::vector<OpBound> ops;  // the longest first
  // Of one run by the time model; 0 where it was not asked about most of the bound's time. Problems that it
  // was not asked about count with their bound and a launch's gap.
  double modelled_ms = 0;
};

struct ModelBound {
  GpuProduct gpu;
  std::string model, dtype;
  std::string counted;  // the target whose kernels were counted, if any
  PictureShape shape;
  std::vector<StageBound> stages;
  double picture_ms = 0;          // all stages, all runs
  double denoise_per_second = 0;  // UNet runs
  uint64_t peak_bytes = 0;        // every stage's weights and the largest arena
  bool fits = true;               // in the GPU's memory
  // By the time model (modelled_times.hpp), not measured; 0 where the card was not modelled.
  double modelled_picture_ms = 0, modelled_step_ms = 0;
  double modelled_error = 0;  // of the model against published times, a median; 0: unknown
  std::string modelled_by;    // the target whose code was played
};

// Plans the model on the product's architecture and bounds each launch: 16-bit launches of attention, linear
// and conv2d at the f16 rate (times the counted share), all other work at the f32 rate. Throws what
// plan_model and make_paper_gpu throw, DeviceError where no kernels were built for the family.
ModelBound predict(const GpuProduct& gpu, const KnownModel& model, const PictureShape& shape, int steps,
                   DType dtype);

// Of one stage; modelled_ms is left at 0. counts: of the product's architecture, or empty.
StageBound bound_stage(const GpuProduct& gpu, const PlannedStage& stage, DType dtype,
                       const KernelCounts& counts);

// A GPU from JSON: {"name", "arch", "compute units", "gigahertz", "memory_gb", "bandwidth_gb_per_s",
// "l2_mb", "last_level_mb"}; the last two may be missing. Throws FormatError naming the field.
GpuProduct gpu_product_from_json(const nlohmann::json& json, std::string_view what);

nlohmann::ordered_json prediction_json(const ModelBound& bound);
std::string prediction_text(const ModelBound& bound);
// One row a GPU, in the order given.
std::string prediction_table(const std::vector<ModelBound>& bounds);

}  // namespace rocm_sd
