#include "analysis/model_shapes.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.hpp"
#include "kernels/select.hpp"
#include "runtime/device.hpp"

namespace rocm_sd {
namespace {

// Those that a problem's text describes in full (measurement/workload.hpp reads it).
constexpr std::array kListedOps = {"attention", "linear", "conv2d", "group_norm", "layer_norm"};

constexpr const char* kHead =
    "# Problems of Stable Diffusion models in full size: the op, then the problem as the op describes it, in "
    "f16.\n"
    "# `make model-shapes` writes this file from the planner, ctest compares it (ModelShapes), GPU tests run "
    "it\n"
    "# (tests/gpu_tests/measurement), `rocm-sd bench --shapes` reads it. A problem stands in the first "
    "section that "
    "has it.\n";

std::vector<PlannedStage> stages_of(const KnownModel& model, const PictureShape& picture) {
  std::vector<PlannedStage> stages = plan_model(host_device(), model, picture, 1, DType::kF16);
  stages.push_back(plan_encoder(host_device(), model, picture, DType::kF16));
  return stages;
}

}  // namespace

std::vector<ShapeSet> default_shape_sets() {
  return {{"sd15", 512, 512}, {"sd15", 1024, 1024}, {"sdxl", 1024, 1024}, {"sdxl", 512, 512}};
}

std::string model_shapes_text(const std::vector<ShapeSet>& sets) {
  // As picture_problems(): the references lay no weight out.
  const ForcedImpl linear("linear", "ref"), conv("conv2d", "ref"), attention("attention", "ref");
  std::set<std::string> seen;
  std::string text = kHead;
  for (const ShapeSet& set : sets)
    for (const PlannedStage& stage :
         stages_of(known_model(set.model), {.height = set.height, .width = set.width})) {
      std::string lines;
      for (const PlannedChoice& choice : stage.choices) {
        if (std::ranges::find(kListedOps, choice.op) == kListedOps.end()) continue;
        const std::string line = concat(choice.op, " ", choice.problem, "\n");
        if (seen.insert(line).second) lines += line;
      }
      if (!lines.empty())
        text += concat("\n# ", set.model, " ", set.width, "x", set.height, " ", stage.name, "\n", lines);
    }
  return text;
}

}  // namespace rocm_sd
