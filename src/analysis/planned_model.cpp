#include "analysis/planned_model.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "kernels/choice_record.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "kernels/select.hpp"
#include "models/clip.hpp"
#include "models/row_split.hpp"
#include "models/unet.hpp"
#include "models/vae.hpp"

namespace rocm_sd {
namespace {

// Weights of which nothing but the shape matters: nothing is written.
class NoValues final : public ParameterSource {
 public:
  std::string title() const override { return "no weights"; }
  bool has(const std::string&) const override { return true; }
  void read(const std::string&, const Shape&, DType, void*) const override {}
  void read_part(const std::string&, const Shape&, int64_t, int64_t, DType, void*) const override {}
  void ignore(const std::string&) const override {}
};

class Planner {
 public:
  // products: the device that would multiply, whose types the problems have.
  Planner(Device& device, const Device& products, const PictureShape& shape, DType dtype)
      : Planner(device, products, shape, dtype, {.conditions = shape.guidance ? 2 : 1}) {}
  Planner(Device& device, const Device& products, const PictureShape& shape, DType dtype,
          const RankShare& share)
      : device_(device), target_(device, products), shape_(shape), dtype_(dtype), share_(share) {}

  PlannedStage text(const std::vector<ClipConfig>& encoders) {
    PlannedStage stage{.name = "text"};
    // As the pipeline loads them: bf16 is not enough for the text (pipeline/components.cpp).
    const DType stored = dtype_ == DType::kBF16 ? DType::kF16 : dtype_;
    const bool host = target_.products.kind() == DeviceKind::kHost;
    const DType compute = dtype_ == DType::kBF16 && host ? DType::kF32 : stored;
    for (const ClipConfig& config : encoders) {
      ClipTextModel model = ClipTextModel::load(device_, config, NoValues(), compute, stored);
      const Tensor ids = make_tensor(device_, {conditions() * shape_.tokens / 77, 77}, DType::kI32);
      plan(stage, model, [&](Exec& ex) { model(ex, ids); });
    }
    return stage;
  }

  // The UNet's two stages: once a picture, then every step.
  std::vector<PlannedStage> unet(const UNetConfig& config, int steps) {
    Ranks* const tensors = share_.tensors;
    UNet model = UNet::load(target_, config, NoValues(), dtype_, {}, {},
                            tensors ? TensorShare{tensors->rank(), tensors->count()} : TensorShare{});
    const int64_t images = shape_.batch * share_.conditions, width = shape_.width / 8;
    const int64_t height = share_.unet ? share_.unet->rows() : shape_.height / 8;
    const TextCache cache = model.make_text_cache(device_, images, shape_.tokens);
    const Tensor states =
        make_tensor(device_, {images, shape_.tokens, config.context_width()}, model.input_dtype());
    TimeInputs time{.timestep = make_tensor(device_, {images}, DType::kF32)};
    if (config.has_added_conditions()) {
      const int64_t pooled = 1280, ids = (config.added_width - pooled) / config.added_time_width;
      time.time_ids = make_tensor(device_, {images, ids}, DType::kF32);
      time.text_embeds = make_tensor(device_, {images, pooled}, model.input_dtype());
    }
    const Tensor shifts = make_tensor(device_, {images, model.time_channels()}, model.compute_dtype());
    const Tensor latents =
        make_tensor(device_, {images, height, width, config.in_channels}, model.input_dtype());
    PlannedStage prepare{.name = "prepare"}, step{.name = "unet", .runs = steps};
    plan(prepare, model, [&](Exec& ex) {
      model.prepare_text(ex, states, cache);
      for (int i = 0; i < steps; ++i) copy_into(ex, model.time_shifts(ex, time), shifts);
    });
    plan(step, model, [&](Exec& ex) {
      const RowScope rows(share_.unet);
      model(ex, latents, shifts, cache, {.ranks = tensors});
    });
    return {prepare, step};
  }

  PlannedStage vae(const VaeConfig& config) {
    VaeDecoder model = VaeDecoder::load(target_, config, NoValues(), dtype_);
    const Tensor latents = make_tensor(
        device_,
        {1, shape_.height / config.downscale(), shape_.width / config.downscale(), config.latent_channels},
        DType::kF32);
    PlannedStage stage{.name = "vae", .runs = static_cast<int>(shape_.batch)};
    if (!share_.decodes) stage.runs = 0;
    try {
      plan(stage, model, [&](Exec& ex) {
        const RowScope rows(share_.vae);
        model(ex, latents);
      });
    } catch (const UsageError&) {  // more pixels than a GPU's kernels count: no implementation takes it whole
      if (share_.vae) throw;
      constexpr int kBands = 8;
      plan(stage, model,
           [&](Exec& ex) { model.decode_in_bands(ex, latents, kBands, [](const Tensor&, int64_t) {}); });
    }
    return stage;
  }

  PlannedStage encoder(const VaeConfig& config) {
    VaeEncoder model = VaeEncoder::load(target_, config, NoValues(), dtype_);
    const Tensor picture =
        make_tensor(device_, {1, shape_.height, shape_.width, config.image_channels}, DType::kF32);
    PlannedStage stage{.name = "vae-encode", .runs = static_cast<int>(shape_.batch)};
    plan(stage, model, [&](Exec& ex) { model(ex, picture); });
    return stage;
  }

 private:
  int64_t conditions() const { return shape_.guidance ? 2 : 1; }

  template <class Model>
  void plan(PlannedStage& stage, Model& model, const Program::Forward& forward) {
    Arena arena(device_);
    Program program(stage.name, arena, forward);
    const ChoiceRecord record;
    const ExchangeRecord exchanges;
    program.plan();
    stage.exchanges.insert(stage.exchanges.end(), exchanges.exchanges().begin(), exchanges.exchanges().end());
    for (const ChoiceRecord::Choice& choice : record.choices()) {
      const auto same = std::ranges::find_if(stage.choices, [&](const PlannedChoice& c) {
        return c.op == choice.op && c.problem == choice.problem && c.impl == choice.impl;
      });
      if (same != stage.choices.end())
        ++same->count;
      else
        stage.choices.push_back({choice.op, choice.problem, choice.impl, 1});
    }
    stage.weight_bytes += resident_bytes([&](Visitor& v) { model.visit(v); });
    stage.arena_bytes = std::max<uint64_t>(stage.arena_bytes, program.arena_bytes());
    stage.flops += program.flops();
    for (const auto& [problem, work] : program.problems()) {
      PlannedWork& sum = stage.problems[problem];
      sum.op = work.op;
      sum.launches += work.launches;
      sum.flops += work.flops;
      sum.bytes += work.bytes;
    }
  }

  Device& device_;
  LoadTarget target_;
  PictureShape shape_;
  DType dtype_;
  RankShare share_;
};

void require_picture(const PictureShape& shape) {
  require(shape.height > 0 && shape.width > 0 && shape.height % 8 == 0 && shape.width % 8 == 0, "picture ",
          shape.width, " x ", shape.height, ": both must be positive multiples of 8");
  require(shape.batch > 0 && shape.tokens > 0 && shape.tokens % 77 == 0, "picture: a batch of ", shape.batch,
          " with ", shape.tokens, " tokens: expected at least one, and a multiple of 77");
}

}  // namespace

const std::vector<KnownModel>& known_models() {
  static const std::vector<KnownModel> models = {
      {"sd15", configs::unet_sd1(), configs::vae_sd(), {configs::clip_l()}, 512},
      {"sd21", configs::unet_sd2(), configs::vae_sd(), {configs::openclip_h()}, 768},
      {"sdxl",
       configs::unet_sdxl(),
       configs::vae_sdxl(),
       {configs::clip_l(), configs::openclip_bigg()},
       1024},
      {"sdxl-refiner", configs::unet_sdxl_refiner(), configs::vae_sdxl(), {configs::openclip_bigg()}, 1024},
  };
  return models;
}

const KnownModel& known_model(const std::string& name) {
  std::vector<std::string> names;
  for (const KnownModel& model : known_models()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  std::string all;
  for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
  throw UsageError(concat("model \"", printable(name), "\" is not known (", nearest_name(name, names),
                          "?); there are ", all, "; a checkpoint is named by its path, such as models/demo"));
}

std::vector<PlannedStage> plan_model(Device& device, const KnownModel& model, const PictureShape& shape,
                                     int steps, DType dtype) {
  return plan_model(device, device, model, shape, steps, dtype);
}

std::vector<PlannedStage> plan_model(Device& device, const Device& products, const KnownModel& model,
                                     const PictureShape& shape, int steps, DType dtype) {
  return plan_share(device, products, model, shape, steps, dtype, {.conditions = shape.guidance ? 2 : 1});
}

std::vector<PlannedStage> plan_share(Device& device, const Device& products, const KnownModel& model,
                                     const PictureShape& shape, int steps, DType dtype,
                                     const RankShare& share) {
  require_picture(shape);
  require<UsageError>(steps > 0, "steps: expected at least 1, got ", steps);
  Planner planner(device, products, shape, dtype, share);
  std::vector<PlannedStage> stages{planner.text(model.encoders)};
  for (PlannedStage& stage : planner.unet(model.unet, steps)) stages.push_back(std::move(stage));
  stages.push_back(planner.vae(model.vae));
  return stages;
}

PlannedStage plan_encoder(Device& device, const Device& products, const KnownModel& model,
                          const PictureShape& shape, DType dtype) {
  require_picture(shape);
  return Planner(device, products, shape, dtype).encoder(model.vae);
}

std::vector<PlannedChoice> picture_problems(const Device& products, const KnownModel& model,
                                            const PictureShape& shape, int steps, DType dtype) {
  // The references lay no weight out, and take every type.
  const ForcedImpl linear("linear", "ref"), conv("conv2d", "ref"), attention("attention", "ref");
  std::vector<PlannedChoice> out;
  for (const PlannedStage& stage : plan_model(host_device(), products, model, shape, steps, dtype))
    for (const PlannedChoice& choice : stage.choices) {
      const auto same = std::ranges::find_if(
          out, [&](const PlannedChoice& c) { return c.op == choice.op && c.problem == choice.problem; });
      if (same != out.end())
        same->count += stage.runs * choice.count;
      else
        out.push_back({choice.op, choice.problem, choice.impl, stage.runs * choice.count});
    }
  return out;
}

}  // namespace rocm_sd
