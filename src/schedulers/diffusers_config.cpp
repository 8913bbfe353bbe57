// Reads Diffusers' scheduler_config.json.
#include "schedulers/diffusers_config.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "schedulers/diffusers_fields.hpp"
#include "schedulers/names.hpp"

namespace rocm_sd {
namespace {

// Groups of fields that a class may have.
enum Knows : unsigned {
  kRescale = 1,      // rescale_betas_zero_snr
  kSpacing = 2,      // timestep_spacing, steps_offset
  kReshape = 4,      // use_karras_sigmas, use_exponential_sigmas, use_beta_sigmas; sigma_min, sigma_max
  kFinal = 8,        // final_sigmas_type
  kClip = 16,        // clip_sample, clip_sample_range
  kThreshold = 32,   // thresholding, dynamic_thresholding_ratio, sample_max_value
  kAlphaOne = 64,    // set_alpha_to_one
  kLambda = 128,     // lambda_min_clipped
  kFlow = 256,       // use_flow_sigmas, flow_shift, use_dynamic_shifting, time_shift_type
  kVariance = 512,   // variance_type of the solvers
  kEdm = 1024,       // sigma_min, sigma_max, sigma_data, sigma_schedule, rho
  kBrownian = 2048,  // noise_sampler_seed
};

// What a class does where its configuration does not say.
struct ClassRow {
  std::string_view name, sampler;
  TimestepGrid grid;
  unsigned knows;
  ScheduleKind spacing = ScheduleKind::kLinspace;
  double beta_start = 0.0001, beta_end = 0.02;
  std::string_view betas = "linear";
  bool knows_all(unsigned fields) const { return (knows & fields) == fields; }
};

constexpr auto kFractional = TimestepGrid::kFractional;
constexpr auto kSolver = TimestepGrid::kSolver;
constexpr auto kRounded = TimestepGrid::kRounded;
constexpr auto kLeading = ScheduleKind::kLeading;
constexpr auto kLinspace = ScheduleKind::kLinspace;
constexpr auto kLcm = ScheduleKind::kLcm;
constexpr unsigned kSigmas = kSpacing | kReshape;
constexpr ClassRow kClasses[] = {
    {"EulerDiscreteScheduler", "euler", kFractional, kRescale | kSigmas | kFinal},
    {"EulerAncestralDiscreteScheduler", "euler_a", kFractional, kRescale | kSpacing},
    {"LMSDiscreteScheduler", "lms", kFractional, kSigmas},
    {"HeunDiscreteScheduler", "heun", kFractional, kSigmas | kClip, kLinspace, 0.00085, 0.012},
    {"KDPM2DiscreteScheduler", "dpm2", kFractional, kSigmas, kLinspace, 0.00085, 0.012},
    {"KDPM2AncestralDiscreteScheduler", "dpm2_a", kFractional, kSigmas, kLinspace, 0.00085, 0.012},
    {"DPMSolverSDEScheduler", "dpmpp_sde", kFractional, kSigmas | kBrownian, kLinspace, 0.00085, 0.012},
    {"DPMSolverMultistepScheduler", "dpmpp_2m", kSolver,
     kRescale | kSigmas | kFinal | kThreshold | kLambda | kFlow | kVariance},
    {"DPMSolverSinglestepScheduler", "dpmpp_2s", kSolver,
     kReshape | kFinal | kThreshold | kLambda | kFlow | kVariance},
    {"UniPCMultistepScheduler", "uni_pc_bh2", kSolver, kRescale | kSigmas | kFinal | kThreshold | kFlow},
    {"DEISMultistepScheduler", "deis", kSolver, kSigmas | kThreshold | kFlow},
    {"SASolverScheduler", "sa_solver", kSolver, kSigmas | kThreshold | kLambda | kFlow | kVariance},
    {"EDMEulerScheduler", "euler", kFractional, kEdm | kFinal},
    {"EDMDPMSolverMultistepScheduler", "dpmpp_2m", kFractional, kEdm | kFinal | kThreshold},
    {"DDIMScheduler", "ddim", kRounded, kRescale | kSpacing | kClip | kThreshold | kAlphaOne, kLeading},
    {"DDIMParallelScheduler", "ddim", kRounded, kRescale | kSpacing | kClip | kThreshold | kAlphaOne,
     kLeading},
    {"DDPMScheduler", "ddpm", kRounded, kRescale | kSpacing | kClip | kThreshold, kLeading},
    {"DDPMParallelScheduler", "ddpm", kRounded, kRescale | kSpacing | kClip | kThreshold, kLeading},
    {"PNDMScheduler", "plms", kRounded, kSpacing | kAlphaOne, kLeading},
    {"LCMScheduler", "lcm", kRounded, kRescale | kClip | kThreshold, kLcm, 0.00085, 0.012, "scaled_linear"},
    {"TCDScheduler", "tcd", kRounded, kRescale, kLcm, 0.00085, 0.012, "scaled_linear"},
};

const ClassRow* find_class(std::string_view name) {
  const auto row = std::ranges::find(kClasses, name, &ClassRow::name);
  return row == std::end(kClasses) ? nullptr : &*row;
}

std::string why_unknown(const std::string& class_name) {
  if (class_name.empty()) return "\"_class_name\" is missing: no scheduler class is named";
  const std::string start = concat("scheduler class \"", printable(class_name, 64), "\" ");
  if (class_name.starts_with("FlowMatch") || class_name.find("Flow") != class_name.npos)
    return start + "is for flow-matching models, which are not Stable Diffusion 1, 2 or XL";
  if (class_name == "IPNDMScheduler")
    return start +
           "counts time from 1 to 0, which no UNet of Stable Diffusion was trained with; the method is "
           "the sampler \"ipndm\"";
  if (class_name.find("Inverse") != class_name.npos) return start + "goes from a picture to noise";
  std::vector<std::string> known;
  for (const ClassRow& row : kClasses) known.emplace_back(row.name);
  const std::optional<std::string> near = similar_name(class_name, known);
  return near ? concat(start, "is not known; did you mean \"", *near, "\"?") : start + "is not known";
}

// Training: betas and what the UNet predicts.
void read_training(const DiffusersFields& fields, const ClassRow* row, DiffusersSchedulerConfig& out) {
  NoiseScheduleArgs& noise = out.noise;
  noise.train_steps = fields.integer("num_train_timesteps", 1000, 1, 100'000);
  const bool edm = row && row->knows_all(kEdm);
  if (!row)  // its defaults are not known
    for (const char* key : {"beta_start", "beta_end", "beta_schedule"})
      fields.refuse(!fields.has(key) && !fields.has("trained_betas"), key,
                    concat("is missing, and the default is not known: ", why_unknown(out.class_name)));
  noise.beta_start = fields.number("beta_start", row ? row->beta_start : 0.0001);
  noise.beta_end = fields.number("beta_end", row ? row->beta_end : 0.02);
  noise.trained_betas = fields.numbers("trained_betas");
  noise.zero_terminal_snr = row && row->knows_all(kRescale) && fields.flag("rescale_betas_zero_snr", false);
  if (edm) {
    noise.edm = {fields.number("sigma_min", 0.002, 1e-9, 1e9), fields.number("sigma_max", 80, 1e-9, 1e9)};
    fields.refuse(noise.edm->low >= noise.edm->high, "sigma_min", "must be below \"sigma_max\"");
    out.sigma_data = fields.number("sigma_data", 0.5, 1e-9, 1e9);
  }
  try {
    noise.beta_schedule = parse_beta_schedule(fields.text("beta_schedule", row ? row->betas : "linear"));
  } catch (const UsageError& e) {
    throw FormatError(concat(fields.file(), ": \"beta_schedule\": ", e.what()));
  }
  try {
    out.prediction = parse_prediction(fields.text("prediction_type", "epsilon"));
  } catch (const UsageError& e) {
    throw FormatError(concat(fields.file(), ": \"prediction_type\": ", e.what()));
  }
  fields.refuse(edm && out.prediction == Prediction::kSample, "prediction_type",
                "must be epsilon or v_prediction for EDM");
  if (row && row->name == "EulerDiscreteScheduler")
    noise.log_sigma_timesteps = fields.choice("timestep_type", "discrete", {"discrete", "continuous"}) == 1 &&
                                out.prediction == Prediction::kV;
}

ScheduleKind read_spacing(const DiffusersFields& fields, const ClassRow& row) {
  if (!row.knows_all(kSpacing)) return row.spacing;
  const std::array kinds = {kLinspace, kLeading, ScheduleKind::kTrailing};
  return kinds[fields.choice("timestep_spacing", to_string(row.spacing),
                             {"linspace", "leading", "trailing"})];
}

void read_reshape(const DiffusersFields& fields, const ClassRow& row, ScheduleArgs& args) {
  if (!row.knows_all(kReshape)) return;
  const std::pair<const char*, ScheduleKind> kinds[] = {
      {"use_karras_sigmas", ScheduleKind::kKarras},
      {"use_exponential_sigmas", ScheduleKind::kExponential},
      {"use_beta_sigmas", ScheduleKind::kBeta}};
  for (const auto& [key, kind] : kinds) {
    if (!fields.flag(key, false)) continue;
    fields.refuse(args.reshape.has_value(), key, "and another of use_*_sigmas are both set");
    args.reshape = kind;
  }
  const bool multistep = row.sampler == "dpmpp_2m";
  const bool lu = multistep && args.reshape != ScheduleKind::kKarras && fields.flag("use_lu_lambdas", false);
  if (lu) args.reshape = ScheduleKind::kExponential;  // Lu's lambdas are uniform in log sigma
  if (!args.reshape) return;
  const bool karras = args.reshape == ScheduleKind::kKarras;
  // Solvers keep integer timesteps: rounded for Karras' and Lu's sigmas, cut off else.
  const bool cosine = multistep && fields.text("beta_schedule", row.betas) == "squaredcos_cap_v2";
  if (row.grid == kSolver)
    args.rounding = (karras || lu) && !cosine ? TimestepRounding::kNearest : TimestepRounding::kDown;
  if (row.sampler.starts_with("dpm2") && karras) args.rounding = TimestepRounding::kNearest;
  if (lu || (karras && (row.sampler == "lms" || row.sampler == "dpmpp_sde"))) return;
  args.sigma_min = fields.number("sigma_min", 0, 1e-9, 1e9);
  args.sigma_max = fields.number("sigma_max", 0, 1e-9, 1e9);
}

void read_last(const DiffusersFields& fields, const ClassRow& row, ScheduleArgs& args) {
  const bool to_sigma_min =
      row.knows_all(kFinal) && fields.choice("final_sigmas_type", "zero", {"zero", "sigma_min"}) == 1;
  const bool deis = row.sampler == "deis" || row.sampler == "sa_solver";
  if (to_sigma_min || deis) args.last = LastLevel::kSigmaMin;
  if (args.reshape && (deis || (to_sigma_min && row.sampler == "uni_pc_bh2")))
    args.last = LastLevel::kRepeatsLast;
  if (row.knows_all(kAlphaOne) && !fields.flag("set_alpha_to_one", row.sampler != "plms"))
    args.last = LastLevel::kSigmaMin;
}

// clip_sample and thresholding, which are meant for pixels.
void read_limits(const DiffusersFields& fields, const ClassRow& row, DiffusersPipeline pipeline,
                 SamplerOptions& options) {
  const bool clips = row.knows_all(kClip) && pipeline != DiffusersPipeline::kStableDiffusion &&
                     fields.flag("clip_sample", row.sampler == "ddim" || row.sampler == "ddpm");
  if (clips) {
    options.clip_sample = fields.number("clip_sample_range", 1, 1e-9, 1e9);
    log().warn("{}: \"clip_sample\" is true (or missing, which means true): clean latents are clamped to {}",
               fields.file(), options.clip_sample);
  }
  if (row.knows_all(kThreshold) && fields.flag("thresholding", false))
    options.thresholding = {fields.number("dynamic_thresholding_ratio", 0.995, 0, 1),
                            fields.number("sample_max_value", 1, 1e-9, 1e9)};
}

// DPM-Solver's algorithm_type, solver_type, order and what goes with them.
void read_dpm_solver(const DiffusersFields& fields, const ClassRow& row, SamplingRequest& request) {
  SamplerOptions& options = request.options;
  const bool single = row.sampler == "dpmpp_2s", edm = row.knows_all(kEdm);
  options.order = fields.integer("solver_order", 2, 1, 3);
  options.lower_order_final = fields.flag("lower_order_final", !single);
  const size_t solver =
      fields.choice("solver_type", "midpoint", {"midpoint", "heun", "logrho", "bh1", "bh2"});
  options.solver = solver == 1 ? SolverType::kHeun : SolverType::kMidpoint;
  const size_t algorithm =
      fields.choice("algorithm_type", "dpmsolver++",
                    {"dpmsolver++", "deis", "sde-dpmsolver++", "dpmsolver", "sde-dpmsolver"});
  const bool sde = algorithm == 2 || algorithm == 4;
  options.predict_noise = algorithm >= 3;
  if (sde) {
    request.sampler = single ? "dpmpp_2s_sde" : "dpmpp_2m_sde";
    options.step_noise = StepNoise::kIndependent;
  }
  const bool to_zero = request.schedule_args.last == LastLevel::kZero;
  fields.refuse(options.predict_noise && (edm || (single && sde)), "algorithm_type",
                "is one that this class does not have");
  fields.refuse(options.predict_noise && to_zero, "algorithm_type",
                "dpmsolver or sde-dpmsolver needs \"final_sigmas_type\" sigma_min");
  fields.refuse(sde && *options.order == 3 && (options.predict_noise || edm), "solver_order",
                "3 is not defined for this \"algorithm_type\"");
  if (single) {
    if (to_zero) options.lower_order_final = true;  // as that class does
  } else {
    options.euler_at_final = fields.flag("euler_at_final", false);
  }
}

void read_unipc(const DiffusersFields& fields, SamplerOptions& options) {
  options.order = fields.integer("solver_order", 2, 1, 3);
  options.lower_order_final = fields.flag("lower_order_final", true);
  const size_t solver = fields.choice("solver_type", "bh2", {"bh1", "bh2", "midpoint", "heun", "logrho"});
  options.solver = solver == 0 ? SolverType::kBh1 : SolverType::kBh2;
  options.predict_noise = !fields.flag("predict_x0", true);
  options.uncorrected_steps = fields.integers("disable_corrector");
  fields.refuse(fields.has("solver_p"), "solver_p");
  fields.refuse(fields.has("shift_terminal"), "shift_terminal", "is for flow-matching models");
}

void read_deis(const DiffusersFields& fields, SamplerOptions& options) {
  options.order = fields.integer("solver_order", 2, 1, 3);
  options.lower_order_final = fields.flag("lower_order_final", true);
  fields.choice("algorithm_type", "deis", {"deis", "dpmsolver", "dpmsolver++"});
  fields.choice("solver_type", "logrho", {"logrho", "midpoint", "heun", "bh1", "bh2"});
}

void read_sa_solver(const DiffusersFields& fields, SamplerOptions& options) {
  options.order = fields.integer("predictor_order", 2, 1, 4);
  options.corrector_order = fields.integer("corrector_order", 2, 1, 4);
  options.lower_order_final = fields.flag("lower_order_final", true);
  options.predict_noise =
      fields.choice("algorithm_type", "data_prediction", {"data_prediction", "noise_prediction"}) == 1;
  fields.refuse(fields.has("tau_func"), "tau_func");
}

void read_edm(const DiffusersFields& fields, const NoiseScheduleArgs& noise, SamplingRequest& request) {
  ScheduleArgs& args = request.schedule_args;
  const size_t kind = fields.choice("sigma_schedule", "karras", {"karras", "exponential"});
  args.kind = kind == 0 ? ScheduleKind::kKarras : ScheduleKind::kExponential;
  args.rho = fields.number("rho", 7, 1e-3, 1e3);
  args.sigma_min = noise.edm->low;
  args.sigma_max = noise.edm->high;
  request.start_scale = StartScale::kVariancePreserving;
}

void read_sampler(const DiffusersFields& fields, const ClassRow& row, DiffusersPipeline pipeline,
                  DiffusersSchedulerConfig& out) {
  SamplingRequest& request = out.request;
  SamplerOptions& options = request.options;
  ScheduleArgs& args = request.schedule_args;
  request.sampler = row.sampler;
  request.schedule_is_set = true;
  args.kind = read_spacing(fields, row);
  args.grid = row.grid;
  args.steps_offset = fields.integer("steps_offset", 0, 0, out.noise.train_steps - 1);
  if (pipeline == DiffusersPipeline::kStableDiffusion)
    args.steps_offset = std::min(1, out.noise.train_steps - 1);
  read_reshape(fields, row, args);
  read_last(fields, row, args);
  read_limits(fields, row, pipeline, options);
  if (row.knows_all(kLambda) && !fields.is_text("lambda_min_clipped"))  // "-Infinity" is the default
    args.lambda_min = fields.number("lambda_min_clipped", args.lambda_min);
  if (row.knows_all(kFlow)) {
    fields.refuse(fields.flag("use_flow_sigmas", false), "use_flow_sigmas", "is for flow-matching models");
    fields.refuse(fields.flag("use_dynamic_shifting", false), "use_dynamic_shifting",
                  "is for flow-matching models");
  }
  fields.refuse(row.knows_all(kVariance) && fields.has("variance_type"), "variance_type",
                "learned needs a UNet with two outputs for each channel");
  if (row.knows_all(kBrownian) && fields.has("noise_sampler_seed"))
    options.path_seed = fields.integer("noise_sampler_seed", 0, 0, std::numeric_limits<int>::max());
  if (row.grid == kSolver || (row.grid == kFractional && args.kind == kLeading))
    request.start_scale = StartScale::kVariancePreserving;
  request.finish_preserving = row.grid == kSolver;

  if (row.knows_all(kEdm)) read_edm(fields, out.noise, request);
  if (row.sampler == "dpmpp_2m" || row.sampler == "dpmpp_2s") read_dpm_solver(fields, row, request);
  if (row.sampler == "uni_pc_bh2") read_unipc(fields, options);
  if (row.sampler == "deis") read_deis(fields, options);
  if (row.sampler == "sa_solver") read_sa_solver(fields, options);
  if (row.name == "EulerDiscreteScheduler")
    args.log_linear = fields.choice("interpolation_type", "linear", {"linear", "log_linear"}) == 1;
  if (row.sampler == "plms")
    args.pndm = fields.flag("skip_prk_steps", false) ? PndmStart::kPlms : PndmStart::kRungeKutta;
  if (row.sampler == "ddpm") {
    const size_t variance =
        fields.choice("variance_type", "fixed_small", {"fixed_small", "fixed_small_log", "fixed_large"});
    options.large_variance = variance == 2;
  }
  if (row.sampler == "tcd") options.eta = 0;  // what Diffusers' pipelines pass
  if (row.spacing == kLcm)
    args.lcm_original_steps = fields.integer("original_inference_steps", 50, 1, out.noise.train_steps);
  if (row.sampler == "lcm") options.timestep_scaling = fields.number("timestep_scaling", 10, 0, 1e9);
}

}  // namespace

DiffusersSchedulerConfig read_diffusers_scheduler(const nlohmann::json& config, std::string_view name,
                                                  DiffusersPipeline pipeline, std::string_view class_name) {
  const DiffusersFields fields(config, name);
  DiffusersSchedulerConfig out;
  out.class_name = class_name.empty() ? fields.text("_class_name", "") : std::string(class_name);
  const ClassRow* row = find_class(out.class_name);
  read_training(fields, row, out);
  if (!row) {
    out.refusal = concat(fields.file(), ": ", why_unknown(out.class_name));
    return out;
  }
  try {
    read_sampler(fields, *row, pipeline, out);
  } catch (const FormatError& e) {
    out.refusal = e.what();
  }
  return out;
}

DiffusersSchedulerConfig parse_diffusers_scheduler(std::string_view text, std::string_view name,
                                                   std::string_view class_name) {
  const nlohmann::json config = parse_json(text, {.nonfinite_as_text = true}, printable(name));
  DiffusersSchedulerConfig out =
      read_diffusers_scheduler(config, name, DiffusersPipeline::kPlain, class_name);
  if (!out.refusal.empty()) throw FormatError(out.refusal);
  return out;
}

}  // namespace rocm_sd
