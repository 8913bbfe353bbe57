// Diffusers' scheduler_config.json: the published ones, and hostile ones.
#include "schedulers/diffusers_config.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"

namespace rocm_sd {
namespace {

// Stable Diffusion 1.5's, as published.
const std::string kSd15 =
    R"({"_class_name": "PNDMScheduler", "_diffusers_version": "0.6.0", "beta_end": 0.012,
  "beta_schedule": "scaled_linear", "beta_start": 0.00085, "num_train_timesteps": 1000, "set_alpha_to_one": false,
  "skip_prk_steps": true, "steps_offset": 1, "trained_betas": null, "clip_sample": false})";

TEST(DiffusersConfig, OfStableDiffusion15) {
  const auto config = parse_diffusers_scheduler(kSd15, "scheduler_config.json");
  EXPECT_EQ(config.class_name, "PNDMScheduler");
  EXPECT_EQ(config.request.sampler, "plms");
  EXPECT_EQ(config.prediction, Prediction::kEpsilon);
  const NoiseSchedule noise(config.noise);
  SamplingRequest request = config.request;
  request.steps = 50;
  const SamplingPlan plan = plan_sampling(noise, request);
  EXPECT_EQ(plan.schedule.levels[0].timestep, 981);
  EXPECT_EQ(plan.schedule.levels[49].timestep, 1);
  EXPECT_NEAR(plan.schedule.levels[50].sigma, 0.0292, 1e-4);
  EXPECT_EQ(plan.unet_calls(), 51);
  EXPECT_EQ(plan.start_factor, 1);
}

TEST(DiffusersConfig, AsAnotherClass) {
  const auto plan_of = [](std::string_view name) {
    auto config = parse_diffusers_scheduler(kSd15, "scheduler_config.json", name);
    config.request.steps = 20;
    return plan_sampling(NoiseSchedule(config.noise), config.request);
  };
  EXPECT_EQ(plan_of("EulerDiscreteScheduler").sampler->name, "euler");
  // linspace: that class's own default, as the configuration does not say.
  EXPECT_EQ(plan_of("EulerDiscreteScheduler").schedule.levels[0].timestep, 999);
  EXPECT_EQ(plan_of("DDIMScheduler").schedule.levels[0].timestep, 951);
  EXPECT_EQ(plan_of("UniPCMultistepScheduler").options.order, 2);
  EXPECT_EQ(plan_of("UniPCMultistepScheduler").options.solver, SolverType::kBh2);
  EXPECT_EQ(plan_of("DPMSolverMultistepScheduler").sampler->name, "dpmpp_2m");
  EXPECT_EQ(plan_of("LCMScheduler").schedule_kind, ScheduleKind::kLcm);
}

TEST(DiffusersConfig, OptionsCount) {
  const auto config = parse_diffusers_scheduler(
      R"({"_class_name": "DPMSolverMultistepScheduler", "use_karras_sigmas": true, "algorithm_type": "sde-dpmsolver++",
          "solver_type": "heun", "prediction_type": "v_prediction", "rescale_betas_zero_snr": true})",
      "x");
  EXPECT_EQ(config.request.sampler, "dpmpp_2m_sde");
  EXPECT_EQ(config.request.options.step_noise, StepNoise::kIndependent);
  EXPECT_EQ(config.request.options.solver, SolverType::kHeun);
  EXPECT_EQ(config.request.schedule_args.reshape, ScheduleKind::kKarras);
  EXPECT_EQ(config.prediction, Prediction::kV);
  EXPECT_TRUE(config.noise.zero_terminal_snr);
  EXPECT_EQ(config.noise.beta_start, 0.0001);  // the class's default
}

std::string refusal(const std::string& text) {
  try {
    parse_diffusers_scheduler(text, "scheduler_config.json");
  } catch (const FormatError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(DiffusersConfig, RefusesBadFiles) {
  for (const char* text : {"null", "[]", "7"})
    EXPECT_NE(refusal(text).find("not a JSON object"), std::string::npos) << text;
  for (const char* text : {"", "{", "{\"a\": }", "\xff\xfe", "version https://git-lfs.github.com"})
    EXPECT_NE(refusal(text).find("scheduler_config.json: not valid"), std::string::npos) << text;
  EXPECT_NE(refusal(std::string(17 << 20, ' ')).find("at most"), std::string::npos);
  const std::string open(2'000'000, '['), close(2'000'000, ']');
  EXPECT_NE(refusal("{\"beta_start\": " + open + close + "}").find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal("{}").find("scheduler class"), std::string::npos);
  EXPECT_NE(refusal(R"({"_class_name": "EulerDiscretScheduler"})").find("EulerDiscreteScheduler"),
            std::string::npos);
  const auto field = [](const std::string& name, const std::string& value) {
    return refusal("{\"_class_name\": \"PNDMScheduler\", \"" + name + "\": " + value + "}");
  };
  for (const char* bad : {"\"1000\"", "0", "-1", "1.5", "1e30", "true", "[]"})
    EXPECT_NE(field("num_train_timesteps", bad).find("num_train_timesteps"), std::string::npos) << bad;
  for (const char* bad : {"[]", "\"x\"", "[1, null]", "{}", "[[0.1]]"})
    EXPECT_NE(field("trained_betas", bad).find("trained_betas"), std::string::npos) << bad;
  EXPECT_NE(field("beta_start", "\"x\"").find("beta_start"), std::string::npos);
  EXPECT_NE(field("beta_schedule", "\"odd\\u001b\"").find("\\x1b"), std::string::npos);
  EXPECT_NE(field("prediction_type", "\"flow\"").find("prediction type"), std::string::npos);
  EXPECT_NE(field("timestep_spacing", "\"odd\"").find("timestep_spacing"), std::string::npos);
  EXPECT_NE(field("skip_prk_steps", "1").find("skip_prk_steps"), std::string::npos);
  EXPECT_EQ(field("thresholding", "true"), "accepted");  // of other classes
  EXPECT_EQ(field("trained_betas", "null"), "accepted");
}

DiffusersSchedulerConfig read(const char* text, DiffusersPipeline pipeline = DiffusersPipeline::kPlain) {
  return read_diffusers_scheduler(nlohmann::json::parse(text), "x", pipeline);
}

TEST(DiffusersConfig, OfAnUnknownClassStillSaysHowTheModelWasTrained) {
  const auto config = read(
      R"({"_class_name": "EulerDiscretScheduler", "beta_start": 0.00085, "beta_end": 0.012,
          "beta_schedule": "scaled_linear", "prediction_type": "v_prediction"})");
  EXPECT_NE(config.refusal.find("did you mean \"EulerDiscreteScheduler\"?"), std::string::npos)
      << config.refusal;
  EXPECT_EQ(config.prediction, Prediction::kV);
  EXPECT_EQ(NoiseSchedule(config.noise).sigma_max(), NoiseSchedule().sigma_max());
  // Its defaults are not known, so that a missing beta cannot be guessed.
  EXPECT_NE(refusal(R"({"_class_name": "FlowMatchEulerDiscreteScheduler"})").find("flow-matching"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"_class_name": "FlowMatchEulerDiscreteScheduler"})").find("did you mean"),
            std::string::npos);
}

TEST(DiffusersConfig, RefusedSamplingLeavesTraining) {
  const auto config =
      read(R"({"_class_name": "DPMSolverMultistepScheduler", "use_flow_sigmas": true, "beta_end": 0.012})");
  EXPECT_NE(config.refusal.find("use_flow_sigmas"), std::string::npos);
  EXPECT_EQ(config.noise.beta_end, 0.012);
}

TEST(DiffusersConfig, StableDiffusionPipelinesRepairTheConfiguration) {
  const char* text = R"({"_class_name": "DDIMScheduler", "steps_offset": 0, "clip_sample": true})";
  const auto repaired = read(text, DiffusersPipeline::kStableDiffusion);
  EXPECT_EQ(repaired.request.schedule_args.steps_offset, 1);
  EXPECT_EQ(repaired.request.options.clip_sample, 0);
  const auto plain = read(text);
  EXPECT_EQ(plain.request.schedule_args.steps_offset, 0);
  EXPECT_EQ(plain.request.options.clip_sample, 1);
}

TEST(DiffusersConfig, NoNumberIsNotTheDefault) {
  const std::string start = R"({"_class_name": "DPMSolverMultistepScheduler", )";
  EXPECT_NE(refusal(start + R"("beta_start": "NaN"})").find("beta_start"), std::string::npos);
  EXPECT_EQ(refusal(start + R"("lambda_min_clipped": "-Infinity"})"), "accepted");
  EXPECT_EQ(refusal(start + R"("lambda_min_clipped": -Infinity})"), "accepted");
}

TEST(DiffusersConfig, OfEdm) {
  const auto config = parse_diffusers_scheduler(
      R"({"_class_name": "EDMEulerScheduler", "sigma_max": 120, "sigma_data": 1.0, "prediction_type": "v_prediction"})",
      "x");
  EXPECT_EQ(config.sigma_data, 1);
  const NoiseSchedule noise(config.noise);
  EXPECT_TRUE(noise.is_edm());
  SamplingRequest request = config.request;
  request.steps = 3;
  const SamplingPlan plan = plan_sampling(noise, request);
  EXPECT_EQ(plan.schedule.levels.front().sigma, 120);
  EXPECT_NEAR(plan.schedule.levels.front().timestep, 0.25 * std::log(120.0), 1e-12);
  // Any sampler that does not count training's timesteps runs on it; those that do say so.
  EXPECT_NO_THROW(plan_sampling(noise, {.sampler = "DPM++ 2M Karras"}));
  EXPECT_NO_THROW(plan_sampling(noise, {.sampler = "DDIM"}));
  EXPECT_THROW(plan_sampling(noise, {.sampler = "LCM"}), UsageError);
}

// A schedule of another project is the same with a configuration as without one: PNDM's calls and stride, the
// end at the least sigma and rounded timesteps belong to the file's spacing.
TEST(DiffusersConfig, ANamedScheduleTakesNothingOfTheFiles) {
  for (const std::string name : {"PNDMScheduler", "DEISMultistepScheduler", "DDIMScheduler",
                                 "EulerDiscreteScheduler", "UniPCMultistepScheduler", "LCMScheduler"}) {
    const auto config = parse_diffusers_scheduler(
        "{\"_class_name\": \"" + name +
            R"(", "beta_start": 0.00085, "beta_end": 0.012, "set_alpha_to_one": false, "use_karras_sigmas": true,
               "final_sigmas_type": "sigma_min", "skip_prk_steps": true})",
        "x");
    const NoiseSchedule noise(config.noise);
    SamplingRequest request = config.request;
    request.steps = 12;
    set_schedule(request, "Exponential");
    const SamplingPlan plan = plan_sampling(noise, request);
    const SamplingPlan want =
        plan_sampling(noise, {.sampler = config.request.sampler, .schedule = "exponential", .steps = 12});
    EXPECT_EQ(plan.schedule.sigmas(), want.schedule.sigmas()) << name;
    EXPECT_EQ(plan.schedule.calls, want.schedule.calls) << name;
    for (size_t i = 0; i < want.schedule.levels.size(); ++i)
      EXPECT_EQ(plan.schedule.levels[i].timestep, want.schedule.levels[i].timestep) << name << ' ' << i;
  }
}

// What Class.from_config(config, timestep_spacing=...) does.
TEST(DiffusersConfig, ANamedSpacingReplacesTheFiles) {
  const auto plan_of = [](const std::string& text, const char* schedule) {
    auto config = parse_diffusers_scheduler(text, "x");
    config.request.steps = 10;
    set_schedule(config.request, schedule);
    return plan_sampling(NoiseSchedule(config.noise), config.request);
  };
  const SamplingPlan pndm = plan_of(kSd15, "trailing");
  EXPECT_EQ(pndm.schedule.calls.size(), 11u);
  EXPECT_EQ(pndm.schedule.stride, 100);
  EXPECT_EQ(pndm.schedule.levels.front().timestep, 999);
  EXPECT_EQ(plan_of(R"({"_class_name": "DDIMScheduler"})", "trailing").schedule.levels.back().sigma, 0);
  const SamplingPlan euler =
      plan_of(R"({"_class_name": "EulerDiscreteScheduler", "timestep_spacing": "leading"})", "linspace");
  EXPECT_EQ(euler.start_factor, euler.schedule.levels.front().sigma);
  EXPECT_EQ(plan_of(kSd15, "Automatic").schedule.levels.front().timestep, 901);  // the file's own
}

TEST(DiffusersConfig, StrengthIsAShareOfGivenSigmas) {
  auto config = parse_diffusers_scheduler(kSd15, "x");
  config.request.sigmas = {10, 5, 2, 1, 0.5};
  config.request.strength = 0.6;
  EXPECT_EQ(plan_sampling(NoiseSchedule(config.noise), config.request).schedule.steps(), 3);
}

TEST(DiffusersConfig, DamageNeverCrashes) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string text = kSd15;
    for (int k = 0; k < 4; ++k) text[random() % text.size()] = static_cast<char>(random());
    text.resize(random() % (text.size() + 1));
    try {
      const auto config = parse_diffusers_scheduler(text, "x");
      plan_sampling(NoiseSchedule(config.noise), config.request);
    } catch (const FormatError&) {
    } catch (const UsageError&) {
    }
  }
}

}  // namespace
}  // namespace rocm_sd
