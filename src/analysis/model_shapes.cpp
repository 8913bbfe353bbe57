#include "analysis/model_shapes.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "analysis/paper_gpu.hpp"
#include "base/error.hpp"
#include "base/gpu_products.hpp"
#include "kernels/select.hpp"
#include "runtime/device.hpp"

namespace rocm_sd {
namespace {

// Those that a problem's text describes in full (measurement/workload.hpp reads it).
constexpr std::array kListedOps = {"attention", "linear", "conv2d", "group_norm", "layer_norm"};

constexpr const char* kHead =
    "# Problems of Stable Diffusion models in full size on a GPU: the op, then the problem as the op "
    "describes it.\n"
    "# `make model-shapes` writes this file from the planner, ctest compares it (ModelShapes), GPU tests run "
    "it\n"
    "# (tests/gpu_tests/measurement), `rocm-sd bench --shapes` reads it. A problem stands in the first "
    "section "
    "that has it.\n";

std::vector<PlannedStage> stages_of(const KnownModel& model, const PictureShape& picture, DType dtype) {
  const auto gpu = make_paper_gpu(gpu_products().front());  // any: it is asked for its kind alone
  std::vector<PlannedStage> stages = plan_model(host_device(), *gpu, model, picture, 1, dtype);
  stages.push_back(plan_encoder(host_device(), *gpu, model, picture, dtype));
  return stages;
}

}  // namespace

std::vector<ShapeSet> default_shape_sets() {
  std::vector<ShapeSet> sets;
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const char* model : {"sd15", "sdxl"})
      for (const int64_t side : {512, 1024}) sets.push_back({model, side, side, dtype});
  return sets;
}

std::string model_shapes_text(const std::vector<ShapeSet>& sets) {
  // As picture_problems(): the references lay no weight out.
  const ForcedImpl linear("linear", "ref"), conv("conv2d", "ref"), attention("attention", "ref");
  std::set<std::string> seen;
  std::string text = kHead;
  for (const ShapeSet& set : sets)
    for (const PlannedStage& stage :
         stages_of(known_model(set.model), {.height = set.height, .width = set.width}, set.dtype)) {
      std::string lines;
      for (const PlannedChoice& choice : stage.choices) {
        if (std::ranges::find(kListedOps, choice.op) == kListedOps.end()) continue;
        const std::string line = concat(choice.op, " ", choice.problem, "\n");
        if (seen.insert(line).second) lines += line;
      }
      if (!lines.empty())
        text += concat("\n# ", set.dtype, " ", set.model, " ", set.width, "x", set.height, " ", stage.name,
                       "\n", lines);
    }
  return text;
}

}  // namespace rocm_sd
