// What a UNet's rounding does to pictures, sampler by sampler: what test_bf16_pictures.py and
// docs/reference/samplers.md rest on.
//
//   rounding_main JOB.json  ->  JSON on standard output
//
// For each sampler and seed of the job four pictures: in f32 on the CPU; by the whole pipeline in "dtype" on
// "device"; and two in f32 but for an error added to the guided prediction of each call: white noise of the
// size that the rounding had at that call on the same input ("noise"), and that rounding itself with the
// other sign
// ("mirrored"). Where the last is as far from f32 as the pipeline's picture, but elsewhere, what lies between
// prediction and picture is the sampler's doing and the model's, and nothing else was rounded.
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "pipeline/load.hpp"
#include "pipeline/request.hpp"
#include "pipeline/text_stage.hpp"
#include "pipeline/unet_stage.hpp"
#include "pipeline/vae_stage.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;
using Floats = std::vector<float>;

double rms(const Floats& values) {
  double squares = 0;
  for (const float v : values) squares += double{1} * v * v;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

double psnr(const Image& a, const Image& b) {
  double squares = 0;
  for (size_t i = 0; i < a.rgb.size(); ++i) squares += std::pow(double{1} * a.rgb[i] - b.rgb[i], 2);
  if (squares == 0) return 100;
  return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.rgb.size()) / squares);
}

// A UNet on its device, called with values in host memory.
class Predictor {
 public:
  Predictor(const LoadOptions& options, Device& device)
      : components(load_components(options, Placement("", device, device.name()), {}, nullptr)),
        arena_(device),
        scratch_(device) {}

  void prepare(const ResolvedRequest& r) {
    EmbeddingLibrary embeddings("");
    const PreparedRequest prepared{r, tokenise(r, components, embeddings)};
    TextStage text(components, arena_, text_shape(prepared));
    const TextStates states = text.run(prepared, {});
    const UnetShape shape{r.request.batch, r.conditions, r.latent_height, r.latent_width,
                          states.states.dim(1)};
    if (!unet_ || !(unet_->shape() == shape)) unet_ = std::make_unique<UnetStage>(components, arena_, shape);
    unet_->plan();
    unet_->set_text(states, prepared.rows.prompts_at(0), {}, {});
  }
  // input [K*N,h,w,4] -> the model's output.
  Floats predict(const Tensor& input, double timestep) {
    Device& device = *components.device;
    const Floats values = to_floats(host_device(), input);
    const Tensor x = tensor_from(device, input.shape(), values.data(), components.unet->input_dtype());
    Exec ex(scratch_);
    return to_floats(device, unet_->step(ex, x, timestep, {}));
  }

  Components components;

 private:
  Arena arena_, scratch_;
  std::unique_ptr<UnetStage> unet_;
};

struct Comparison {
  explicit Comparison(const json& job)
      : device(device_named(job.value("device", "cpu"))),
        exact({.model = job.at("model"), .dtype = "f32"}, host_device()),
        rounded({.model = job.at("model"), .dtype = job.value("dtype", "bf16")}, device),
        whole(load_pipeline({.model = job.at("model"), .dtype = job.value("dtype", "bf16")}, device)),
        schedule(exact.components.noise),
        arena(host_device()),
        scratch(host_device()) {}

  // unconditional + scale * (conditional - unconditional)
  Floats guided(const Floats& output, double scale) const {
    const size_t half = output.size() / 2;
    Floats out(half);
    for (size_t i = 0; i < half; ++i)
      out[i] = static_cast<float>(output[i] + scale * (output[half + i] - output[i]));
    return out;
  }

  Image draw(const ResolvedRequest& r, const Denoiser::UnetCall& unet) {
    Exec ex(scratch);
    BatchNoise noise(r.noise, {{static_cast<uint64_t>(r.request.seed)}}, 4, r.latent_height, r.latent_width);
    const Floats first = noise.next();
    const Denoiser denoiser(unet,
                            {.prediction = exact.components.prediction, .cfg_scale = r.request.cfg_scale});
    const Tensor start =
        start_from_noise(ex, r.sampling, tensor_from(host_device(), noise.shape(), first.data()));
    const Tensor latents = run_sampler(ex, schedule, r.sampling, denoiser, &noise, start, {});
    if (!vae)
      vae = std::make_unique<VaeStage>(exact.components, arena, VaeShape{r.latent_height, r.latent_width});
    return vae->decode(latents, {});
  }

  json compare(const GenerateRequest& request) {
    const ResolvedRequest r = resolve_request(request, exact.components, schedule);
    exact.prepare(r);
    rounded.prepare(r);
    std::vector<Floats> errors;  // of the guided prediction at each call
    double signal = 0, error = 0;
    const Image want = draw(r, [&](Exec&, const Tensor& input, double t) {
      const Floats a = exact.predict(input, t);
      const Floats clean = guided(a, request.cfg_scale);
      Floats difference = guided(rounded.predict(input, t), request.cfg_scale);
      for (size_t i = 0; i < clean.size(); ++i) difference[i] -= clean[i];
      signal += std::pow(rms(clean), 2);
      error += std::pow(rms(difference), 2);
      errors.push_back(std::move(difference));
      return tensor_from(host_device(), input.shape(), a.data());
    });
    const Image got = whole.generate(request).pictures[0].image;
    std::mt19937_64 random(static_cast<uint64_t>(r.request.seed) + 1);
    const Image noisy = disturbed(r, [&](size_t call, size_t) {
      std::normal_distribution<float> noise(0, static_cast<float>(rms(errors.at(call))));
      return noise(random);
    });
    const Image mirrored = disturbed(r, [&](size_t call, size_t i) { return -errors.at(call)[i]; });
    return {{"error", std::sqrt(error / signal)},
            {"calls", errors.size()},
            {"picture", psnr(got, want)},
            {"noise", psnr(noisy, want)},
            {"mirrored", psnr(mirrored, want)}};
  }

  // The picture in f32 with error(call, i) added to value i of the guided prediction of each call.
  template <class Error>
  Image disturbed(const ResolvedRequest& r, const Error& error) {
    size_t call = 0;
    return draw(r, [&](Exec&, const Tensor& input, double t) {
      Floats a = exact.predict(input, t);
      const size_t half = a.size() / 2;
      for (size_t i = 0; i < half; ++i) {  // the same in both halves: guidance passes it on as it is
        const float e = error(call, i);
        a[i] += e;
        a[half + i] += e;
      }
      ++call;
      return tensor_from(host_device(), input.shape(), a.data());
    });
  }

  Device& device;
  Predictor exact, rounded;
  Pipeline whole;
  NoiseSchedule schedule;
  Arena arena, scratch;
  std::unique_ptr<VaeStage> vae;
};

// {"model", "device", "dtype", "samplers": [names] (all), "seeds", "steps", "size", "cfg_scale"} ->
// {"dtype", "results": {sampler: [{"error": relative, "calls", "picture", "noise", "mirrored": dB} of each
// seed]}}
json run(const json& job) {
  Comparison comparison(job);
  std::vector<std::string> names;
  for (const SamplerRow& row : samplers()) names.emplace_back(row.name);
  json results;
  for (const std::string& name : job.value("samplers", names)) {
    for (const int64_t seed : job.at("seeds").get<std::vector<int64_t>>()) {
      GenerateRequest request;
      request.prompt = job.value("prompt", "a red apple");
      request.negative_prompt = job.value("negative_prompt", "a car");
      request.width = request.height = job.value("size", 64);
      request.steps = job.value("steps", 6);
      request.cfg_scale = job.value("cfg_scale", 5.0);
      request.sampler = name;
      request.seed = seed;
      results[name].push_back(comparison.compare(request));
    }
  }
  return {{"results", results},
          {"products", dtype_name(comparison.rounded.components.unet->compute_dtype())}};
}

}  // namespace
}  // namespace rocm_sd

int main(int argc, char** argv) {
  using namespace rocm_sd;
  try {
    require<UsageError>(argc == 2, "usage: rounding_main JOB.json");
    std::cout << run(json::parse(std::ifstream(argv[1]))).dump() << "\n";
  } catch (const Error& e) {
    std::cerr << "error: " << e.what() << "\n";
    return static_cast<int>(e.exit_code());
  }
  return 0;
}
