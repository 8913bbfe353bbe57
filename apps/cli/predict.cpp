// rocm-sd predict: the roofline of a model on any GPU, and a model of it on several.
#include "analysis/predict.hpp"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "analysis/predict_scaling.hpp"
#include "apps/cli/commands.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "scaling/split.hpp"

namespace rocm_sd::cli {
namespace {

constexpr const char* kBuildKernels =
    "`make deps-gpu`, then `cmake --build build/cpu --target kernels_gfx1100` builds those of one "
    "architecture "
    "(ROCM_SD_ARCHS lists them)";

struct PredictCommand {
  std::string gpu, gpu_file, model = "sd15", dtype = "f16", size;
  std::string link, split = "images", way = "host";  // of several GPUs
  std::vector<double> measured;
  int gpus = 0;
  int64_t width = 0, height = 0, batch = 1;
  int steps = 20;
  bool no_guidance = false, json = false;
};

std::vector<GpuProduct> wanted_gpus(const PredictCommand& c) {
  if (!c.gpu_file.empty()) return {gpu_product_from_json(parse_json_file(c.gpu_file), c.gpu_file)};
  if (c.gpu.empty() || c.gpu == "all") return gpu_products();
  if (const GpuProduct* gpu = find_gpu_product(c.gpu)) return {*gpu};
  std::vector<std::string> names;
  for (const GpuProduct& gpu : gpu_products()) names.push_back(gpu.name);
  throw UsageError(concat("gpu \"", printable(c.gpu), "\" is not in the table (", nearest_name(c.gpu, names),
                          "?); `rocm-sd predict` lists them, --gpu-file describes another"));
}

DType parse_compute_type(const std::string& name) {
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  throw UsageError(concat("dtype: expected f16 or bf16, got \"", printable(name), "\""));
}

// "1024x768" into the width and the height.
void read_size(PredictCommand& c) {
  if (c.size.empty()) return;
  const size_t by = c.size.find('x');
  require<UsageError>(by != std::string::npos && c.width == 0 && c.height == 0,
                      "size: expected one such as 1024x768, without --width and --height, got \"",
                      printable(c.size), "\"");
  c.width = parse_integer(c.size.substr(0, by), 8, 16384);
  c.height = parse_integer(c.size.substr(by + 1), 8, 16384);
}

void predict_several(const PredictCommand& c, const KnownModel& model, const PictureShape& shape,
                     DType dtype) {
  const std::vector<GpuProduct> gpus = wanted_gpus(c);
  require<UsageError>(gpus.size() == 1, "predict --gpus: expected --gpu with one card's name, or --gpu-file");
  require<UsageError>(!c.link.empty(), "predict --gpus: expected --link pcie3, pcie4, pcie5, xgmi or nvlink");
  const Split split = parse_split(c.split);
  ScalingSetup setup{.gpus = c.gpus,
                     .link = known_link(c.link),
                     .way = c.way == "peer" ? MessageWay::kPeer : MessageWay::kHost,
                     .split = c.split};
  if (split.division && c.gpus > 1) {
    split.group_size(static_cast<size_t>(c.gpus));
    setup.division = split.division->what;
    setup.exact_calls = split.division->exact_calls;
  }
  if (!c.measured.empty())
    setup.measured = {c.measured[0], c.measured[1], c.measured.size() > 2 ? c.measured[2] : 0};
  const ScalingPrediction found = [&] {
    try {
      return predict_scaling(gpus[0], model, shape, c.steps, dtype, setup);
    } catch (const DeviceError& e) {
      throw DeviceError(concat(e.what(), "; ", kBuildKernels));
    }
  }();
  if (c.json)
    fmt::print("{}\n", scaling_json(found).dump(2));
  else
    fmt::print("{}", scaling_text(found));
}

void run_predict(PredictCommand& c) {
  const KnownModel& model = known_model(c.model);
  read_size(c);
  const PictureShape shape{.height = c.height ? c.height : model.side,
                           .width = c.width ? c.width : model.side,
                           .batch = c.batch,
                           .guidance = !c.no_guidance};
  for (const auto& [name, side] : {std::pair("width", shape.width), {"height", shape.height}})
    require<UsageError>(side % 8 == 0, name, ": expected a multiple of 8, got ", side);
  const DType dtype = parse_compute_type(c.dtype);
  if (c.gpus > 0) return predict_several(c, model, shape, dtype);
  require<UsageError>(c.link.empty() && c.measured.empty(),
                      "predict: --link and --measured say how several GPUs draw: expected --gpus, too");
  const std::vector<GpuProduct> gpus = wanted_gpus(c);
  std::vector<ModelBound> bounds;
  std::string without;  // of all GPUs: those of families that were not built
  for (const GpuProduct& gpu : gpus) {
    try {
      bounds.push_back(predict(gpu, model, shape, c.steps, dtype));
    } catch (const DeviceError& e) {
      if (gpus.size() == 1) throw DeviceError(concat(e.what(), "; ", kBuildKernels));
      without += concat(without.empty() ? "" : ", ", gpu.name);
    }
  }
  require<DeviceError>(!bounds.empty(), "predict: there are kernels for no GPU; ", kBuildKernels);
  if (!without.empty())
    fmt::print(stderr, "left out, for there are no kernels for them: {}\n{}\n", without, kBuildKernels);
  if (c.json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const ModelBound& bound : bounds) all.push_back(prediction_json(bound));
    fmt::print("{}\n", all.dump(2));
  } else {
    fmt::print("{}", bounds.size() == 1 ? prediction_text(bounds[0]) : prediction_table(bounds));
  }
}

}  // namespace

void add_predict(CLI::App& app) {
  auto c = std::make_shared<PredictCommand>();
  CLI::App* sub =
      app.add_subcommand("predict", "bound the time and the memory of a model on any GPU, without one");
  sub->add_option("--gpu", c->gpu, "a name such as \"RX 7900 XTX\" [all that are known]");
  sub->add_option("--gpu-file", c->gpu_file,
                  "JSON of another GPU: {\"name\": \"mine\", \"arch\": \"gfx1100\", \"compute_units\": 96, "
                  "\"gigahertz\": 2.5, \"memory_gb\": 24, \"bandwidth_gb_per_s\": 960}");
  sub->add_option("--model", c->model, "sd15, sd21, sdxl or sdxl-refiner [sd15]");
  add_number(sub, "-W,--width", c->width, "pixels, a multiple of 8 [the model's own]", 8, 16384);
  add_number(sub, "-H,--height", c->height, "pixels, a multiple of 8 [the model's own]", 8, 16384);
  sub->add_option("--size", c->size, "WIDTHxHEIGHT in place of -W and -H");
  add_number(sub, "--batch", c->batch, "pictures at once [1]", 1, 1024);
  add_number(sub, "--steps", c->steps, "UNet runs a picture [20]", 1, 10000);
  sub->add_option("--dtype", c->dtype, "f16 or bf16 [f16]");
  sub->add_flag("--no-guidance", c->no_guidance, "one UNet pass a picture and step");
  sub->add_flag("--json", c->json, "print JSON");
  add_number(sub, "--gpus", c->gpus, "model so many of the GPU, in one host", 1, 64);
  sub->add_option("--link", c->link, "with --gpus, between them: pcie3, pcie4, pcie5, xgmi or nvlink");
  sub->add_option("--split", c->split,
                  "with --gpus: images, guidance, rows, guidance-rows, tensor, displaced[:CALLS] or "
                  "guidance-displaced[:CALLS] [images]");
  sub->add_option("--way", c->way,
                  "with --gpus, of messages: host (through host memory, as the engine passes them) or peer "
                  "(copies between GPUs) [host]")
      ->check(CLI::IsMember({"host", "peer"}));
  sub->add_option(
         "--measured", c->measured,
         "with --gpus: what a step and decoding take on one GPU, in ms, one picture with guidance of "
         "the model's own size; then perhaps a step without guidance")
      ->expected(2, 3)
      ->check(CLI::PositiveNumber);
  sub->callback([c] { run_predict(*c); });
}

}  // namespace rocm_sd::cli
