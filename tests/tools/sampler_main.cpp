// Runs one sampler on an analytic denoiser and prints its trajectory: what test_samplers.py compares with
// Diffusers.
//
//   sampler_main JOB.json  ->  JSON on standard output
//
// A job is either {"noise": {"kind", "seed", "sizes"}}, whose values are written to the file "out" as raw
// floats; or {"brownian": {"kind", "seeds", "shape", "sigma_min", "sigma_max", "pairs"}}, likewise; or a
// sampling job, see run_job; or {"jobs": [...]}, a list of sampling jobs, whose answers are a list with
// {"error": text, "exit_code": n} for those that fail. Latents travel as flat lists in the order [N,C,H,W].
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "schedulers/diffusers_config.hpp"
#include "schedulers/sampler.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;

void write_floats(const std::string& path, const std::vector<float>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * 4));
  require<FileError>(file.good(), path, ": cannot write");
}

json noise_job(const json& job) {
  const auto source =
      make_noise_source(parse_noise_kind(job.at("kind").get<std::string>()), job.at("seed").get<uint64_t>());
  std::vector<float> all;
  for (const size_t size : job.at("sizes").get<std::vector<size_t>>()) {
    std::vector<float> values(size);
    source->fill(values);
    all.insert(all.end(), values.begin(), values.end());
  }
  write_floats(job.at("out"), all);
  return {{"count", all.size()}};
}

Shape nhwc(const json& shape) {  // from [N,C,H,W]
  return {shape.at(0).get<int64_t>(), shape.at(2).get<int64_t>(), shape.at(3).get<int64_t>(),
          shape.at(1).get<int64_t>()};
}

json brownian_job(const json& job) {
  BrownianNoise path(parse_noise_kind(job.at("kind").get<std::string>()),
                     job.at("seeds").get<std::vector<uint64_t>>(), nhwc(job.at("shape")),
                     job.at("sigma_min").get<double>(), job.at("sigma_max").get<double>());
  std::vector<float> all;
  for (const auto& [a, b] : job.at("pairs").get<std::vector<std::pair<double, double>>>()) {
    const std::vector<float> values = path.between(a, b);
    all.insert(all.end(), values.begin(), values.end());
  }
  write_floats(job.at("out"), all);
  return {{"count", all.size()}};
}

std::vector<float> to_nchw(const Tensor& x) {
  const std::vector<float> in = to_floats(host_device(), x);
  std::vector<float> out(in.size());
  const int64_t pixels = x.dim(1) * x.dim(2), channels = x.dim(3);
  for (int64_t n = 0; n < x.dim(0); ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < pixels; ++i)
        out[(n * channels + c) * pixels + i] = in[(n * pixels + i) * channels + c];
  return out;
}

Tensor from_nchw(const json& values, const Shape& shape) {
  const std::vector<float> in = values.get<std::vector<float>>();
  require<UsageError>(in.size() == static_cast<size_t>(shape.numel()), "latents: expected ", shape.numel(),
                      " values, got ", in.size());
  std::vector<float> out(in.size());
  const int64_t pixels = shape[1] * shape[2], channels = shape[3];
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < pixels; ++i)
        out[(n * pixels + i) * channels + c] = in[(n * channels + c) * pixels + i];
  return tensor_from(host_device(), shape, out.data());
}

// A model with a known answer: clean latents are 0.6 * mean + 0.4 * tanh(x) in every element, x being its
// normalised input and mean(t) a slow wave of the timestep. What the model returns is that in terms of its
// prediction type. The unconditional half (the first images of a batch of two conditions) has tanh(x / 2)
// instead.
class ToyUnet {
 public:
  ToyUnet(const NoiseSchedule& noise, Prediction prediction, double sigma_data)
      : noise_(noise), prediction_(prediction), sigma_data_(sigma_data) {}

  Tensor operator()(Exec& ex, const Tensor& input, double timestep, int conditions) const {
    const Tensor out = ex.alloc_like(input);
    // alpha_bar at a fractional timestep: through log sigma, as the schedule interpolates it.
    const bool logarithmic = noise_.log_sigma_timesteps();
    const bool whole = !logarithmic && timestep == std::floor(timestep);
    const double sigma = logarithmic ? std::exp(4 * timestep) : noise_.sigma(timestep);
    const double alpha_bar =
        whole ? noise_.alphas_cumprod()[static_cast<size_t>(timestep)] : 1 / (1 + sigma * sigma);
    const double signal = std::sqrt(alpha_bar), spread = std::sqrt(1 - alpha_bar);
    const double mean = 0.5 * std::cos(timestep * 0.003);
    const float* in = input.as<float>();
    float* to = out.as<float>();
    const int64_t half = input.numel() / conditions;
    for (int64_t i = 0; i < input.numel(); ++i) {
      const double x = in[i];
      const double clean = 0.6 * mean + 0.4 * std::tanh(conditions > 1 && i < half ? 0.5 * x : x);
      double value = clean;
      if (sigma_data_ > 0) {  // EDM: clean = c_skip * latents + c_out * output
        const double square = sigma * sigma + sigma_data_ * sigma_data_;
        const double skipped = sigma_data_ * sigma_data_ / std::sqrt(square) * x;
        const double sign = prediction_ == Prediction::kV ? -1 : 1;
        to[i] = static_cast<float>((clean - skipped) * std::sqrt(square) / (sign * sigma * sigma_data_));
        continue;
      }
      if (prediction_ == Prediction::kEpsilon) value = (x - signal * clean) / spread;
      if (prediction_ == Prediction::kV) value = (signal * x - clean) / spread;
      to[i] = static_cast<float>(value);
    }
    return out;
  }

 private:
  const NoiseSchedule& noise_;
  Prediction prediction_;
  double sigma_data_;
};

SamplerOptions read_options(const json& job, SamplerOptions options) {
  if (job.contains("eta")) options.eta = job["eta"].get<double>();
  if (job.contains("order")) options.order = job["order"].get<int>();
  if (job.contains("independent")) options.step_noise = StepNoise::kIndependent;
  options.s_churn = job.value("s_churn", 0.0);
  options.s_noise = job.value("s_noise", 1.0);
  return options;
}

// {"config": scheduler_config, "class": name or "", "pipeline": "sd" or "xl"} or {"sampler", "schedule",
// "noise_args"}; "steps", "shape" [N,C,H,W], "seeds", "noise_kind", "cfg_scale", "rescale", "sigmas",
// "strength", "latents" (clean, to start from), "eta", ... ->
// {"sigmas", "timesteps", "alpha_bars", "start", "trajectory": [x after each step], "denoised": [...],
// "calls": [timestep of each UNet call], "inputs": [what it got], "final", "unet_calls", "noise_pairs"}
json run_job(const json& job) {
  SamplingRequest request;
  NoiseScheduleArgs noise_args;
  Prediction prediction = Prediction::kEpsilon;
  double sigma_data = 0;
  if (job.contains("config")) {
    const bool sd = job.value("pipeline", "xl") == "sd";
    const auto config = read_diffusers_scheduler(
        job["config"], "job", sd ? DiffusersPipeline::kStableDiffusion : DiffusersPipeline::kPlain,
        job.value("class", ""));
    require<FormatError>(config.refusal.empty(), config.refusal);
    request = config.request;
    sigma_data = config.sigma_data;
    noise_args = config.noise;
    prediction = config.prediction;
  } else {
    request.sampler = job.at("sampler");
    request.schedule = job.value("schedule", "automatic");
    noise_args.zero_terminal_snr = job.value("zero_snr", false);
  }
  if (job.contains("prediction")) prediction = parse_prediction(job["prediction"].get<std::string>());
  request.steps = job.value("steps", 20);
  request.sigmas = job.value("sigmas", std::vector<double>{});
  request.strength = job.value("strength", 1.0);
  request.options = read_options(job, request.options);

  const NoiseSchedule noise(noise_args);
  const SamplingPlan plan = plan_sampling(noise, request);
  json out;
  for (const NoiseLevel& level : plan.schedule.levels) {
    out["sigmas"].push_back(level.sigma);
    out["timesteps"].push_back(level.timestep);
    out["alpha_bars"].push_back(level.alpha_bar);
  }
  out["unet_calls"] = plan.unet_calls();
  if (job.value("plan_only", false)) return out;

  Arena arena(host_device());
  Exec ex(arena);
  const ToyUnet toy(noise, prediction, sigma_data);
  const DenoiserArgs args{.prediction = prediction,
                          .sigma_data = sigma_data,
                          .cfg_scale = job.value("cfg_scale", 1.0),
                          .guidance_rescale = job.value("rescale", 0.0),
                          .mimic_scale = job.value("mimic_scale", 0.0),
                          .mimic_percentile = job.value("mimic_percentile", 1.0),
                          .needs_negative = plan.sampler->uses_negative};
  const int conditions = args.cfg_scale == 1 && !args.needs_negative ? 1 : 2;
  out["calls"] = json::array();
  out["inputs"] = json::array();
  const double perturbation = job.value("perturbation", 0.0);
  std::mt19937 random(job.value("perturbation_seed", 1u));
  const Denoiser denoiser(
      [&](Exec& e, const Tensor& input, double timestep) {
        out["calls"].push_back(timestep);
        out["inputs"].push_back(to_nchw(input));
        const Tensor output = toy(e, input, timestep, conditions);
        std::normal_distribution<float> normal;
        if (perturbation > 0)
          for (int64_t i = 0; i < output.numel(); ++i)
            output.as<float>()[i] += static_cast<float>(perturbation) * normal(random);
        return output;
      },
      args);

  std::vector<ImageSeed> seeds;
  for (const uint64_t seed : job.at("seeds").get<std::vector<uint64_t>>()) seeds.push_back({seed});
  const Shape shape = nhwc(job.at("shape"));
  BatchNoise source(parse_noise_kind(job.value("noise_kind", "cpu")), seeds, shape[3], shape[1], shape[2]);
  const std::vector<float> first = source.next();
  const Tensor initial = tensor_from(host_device(), shape, first.data());
  const Tensor start = job.contains("latents")
                           ? start_from_latents(ex, plan, from_nchw(job["latents"], shape), initial)
                           : start_from_noise(ex, plan, initial);
  out["start"] = to_nchw(start);
  SamplerHooks hooks;
  const int cancel_after = job.value("cancel_after", 0);
  hooks.on_step = [&](const StepReport& report) {
    out["trajectory"].push_back(to_nchw(report.latents));
    out["denoised"].push_back(to_nchw(report.denoised));
    out["total"] = report.total;
    return report.step != cancel_after;
  };
  out["final"] = to_nchw(run_sampler(ex, noise, plan, denoiser, &source, start, hooks));
  return out;
}

json run_jobs(const json& jobs) {
  json out = json::array();
  for (const json& job : jobs) {
    try {
      out.push_back(run_job(job));
    } catch (const Error& e) {
      out.push_back({{"error", e.what()}, {"exit_code", static_cast<int>(e.exit_code())}});
    }
  }
  return out;
}

}  // namespace
}  // namespace rocm_sd

int main(int argc, char** argv) {
  using namespace rocm_sd;
  try {
    require<UsageError>(argc == 2, "usage: sampler_main JOB.json");
    const json job = json::parse(std::ifstream(argv[1]));
    const json out = job.contains("noise")      ? noise_job(job["noise"])
                     : job.contains("brownian") ? brownian_job(job["brownian"])
                     : job.contains("jobs")     ? run_jobs(job["jobs"])
                                                : run_job(job);
    std::cout << out.dump() << "\n";
  } catch (const Error& e) {
    std::cerr << "error: " << e.what() << "\n";
    return static_cast<int>(e.exit_code());
  }
  return 0;
}
