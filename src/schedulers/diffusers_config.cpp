// Reads Diffusers' scheduler_config.json.
#include "schedulers/diffusers_config.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/log.hpp"
#include "schedulers/names.hpp"

namespace rocm_sd {
namespace {

using nlohmann::json;

constexpr size_t kMaxBytes = size_t{4} << 20;

// The fields of one object, each checked for type and range and read with the class's default where it is
// missing or null.
class Fields {
 public:
  Fields(std::string_view text, std::string_view name) : name_(printable(name)) {
    require<FormatError>(text.size() <= kMaxBytes, name_, ": larger than ", kMaxBytes, " bytes");
    object_ = json::parse(text, nullptr, /*allow_exceptions=*/false);
    require<FormatError>(object_.is_object(), name_, ": not a JSON object");
  }

  const std::string& name() const { return name_; }
  bool has(const char* key) const { return find(key) != nullptr; }
  bool flag(const char* key, bool fallback) const {
    const json* value = find(key);
    if (!value) return fallback;
    require<FormatError>(value->is_boolean(), name_, ": \"", key, "\" must be true or false");
    return value->get<bool>();
  }
  double number(const char* key, double fallback) const {
    const json* value = find(key);
    return value ? to_number(*value, key) : fallback;
  }
  int integer(const char* key, int fallback, int low, int high) const {
    const json* value = find(key);
    if (!value) return fallback;
    const double number = to_number(*value, key);
    require<FormatError>(number == std::floor(number) && number >= low && number <= high, name_, ": \"", key,
                         "\" must be a whole number within ", low, "..", high, ", not ", number);
    return static_cast<int>(number);
  }
  std::string text(const char* key, std::string_view fallback) const {
    const json* value = find(key);
    if (!value) return std::string(fallback);
    require<FormatError>(value->is_string(), name_, ": \"", key, "\" must be a string");
    return value->get<std::string>();
  }
  std::vector<double> numbers(const char* key) const {
    const json* value = find(key);
    if (!value) return {};
    require<FormatError>(value->is_array() && !value->empty(), name_, ": \"", key,
                         "\" must be a list of at least one number");
    std::vector<double> out;
    for (const json& element : *value) out.push_back(to_number(element, key));
    return out;
  }
  bool empty_list(const char* key) const {
    const json* value = find(key);
    return value && value->is_array() && value->empty();
  }
  // Refuses what the samplers here do not do.
  void refuse(bool used, std::string_view feature) const {
    require<FormatError>(!used, name_, ": ", feature, " is not supported");
  }

 private:
  const json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  double to_number(const json& value, const char* key) const {
    require<FormatError>(value.is_number() && std::isfinite(value.get<double>()), name_, ": \"", key,
                         "\" must hold finite numbers");
    return value.get<double>();
  }

  std::string name_;
  json object_;
};

// What a class does where its configuration does not say.
struct ClassDefaults {
  std::string_view name, sampler;
  TimestepGrid grid;
  ScheduleKind spacing = ScheduleKind::kLinspace;
  double beta_start = 0.0001, beta_end = 0.02;
  std::string_view betas = "linear";
  int order = 1;
  bool lower_order_final = false;
  bool to_alpha_one = true;  // set_alpha_to_one
};

constexpr auto kFractional = TimestepGrid::kFractional;
constexpr auto kSolver = TimestepGrid::kSolver;
constexpr auto kRounded = TimestepGrid::kRounded;
constexpr auto kLeading = ScheduleKind::kLeading;
constexpr auto kLinspace = ScheduleKind::kLinspace;
constexpr ClassDefaults kClasses[] = {
    {"EulerDiscreteScheduler", "euler", kFractional},
    {"EulerAncestralDiscreteScheduler", "euler_a", kFractional},
    {"LMSDiscreteScheduler", "lms", kFractional, kLinspace, 0.0001, 0.02, "linear", 4},
    {"HeunDiscreteScheduler", "heun", kFractional, kLinspace, 0.00085, 0.012},
    {"KDPM2DiscreteScheduler", "dpm2", kFractional, kLinspace, 0.00085, 0.012},
    {"KDPM2AncestralDiscreteScheduler", "dpm2_a", kFractional, kLinspace, 0.00085, 0.012},
    {"DPMSolverSDEScheduler", "dpmpp_sde", kFractional, kLinspace, 0.00085, 0.012},
    {"DPMSolverMultistepScheduler", "dpmpp_2m", kSolver, kLinspace, 0.0001, 0.02, "linear", 2, true},
    {"DPMSolverSinglestepScheduler", "dpmpp_2s", kSolver, kLinspace, 0.0001, 0.02, "linear", 2, true},
    {"UniPCMultistepScheduler", "uni_pc_bh2", kSolver, kLinspace, 0.0001, 0.02, "linear", 2, true},
    {"DEISMultistepScheduler", "deis", kSolver, kLinspace, 0.0001, 0.02, "linear", 2, true},
    {"DDIMScheduler", "ddim", kRounded, kLeading},
    {"DDPMScheduler", "ddpm", kRounded, kLeading},
    {"PNDMScheduler", "plms", kRounded, kLeading, 0.0001, 0.02, "linear", 1, false, false},
    {"LCMScheduler", "lcm", kRounded, kLeading, 0.00085, 0.012, "scaled_linear"},
    {"TCDScheduler", "tcd", kRounded, kLeading, 0.00085, 0.012, "scaled_linear"},
};

const ClassDefaults& find_class(const std::string& class_name, const std::string& file) {
  std::vector<std::string> known;
  for (const ClassDefaults& row : kClasses) {
    if (row.name == class_name) return row;
    known.emplace_back(row.name);
  }
  try {
    throw_unknown_name("scheduler class", class_name, known);
  } catch (const UsageError& e) {
    throw FormatError(concat(file, ": ", e.what()));
  }
}

ScheduleKind read_spacing(const Fields& fields, const ClassDefaults& row) {
  if (row.sampler == "dpmpp_2s") return ScheduleKind::kLinspace;  // knows no other
  if (row.sampler == "lcm" || row.sampler == "tcd") return ScheduleKind::kLcm;
  const std::string spacing = fields.text("timestep_spacing", to_string(row.spacing));
  for (const ScheduleKind kind : {kLinspace, kLeading, ScheduleKind::kTrailing})
    if (spacing == to_string(kind)) return kind;
  throw FormatError(concat(fields.name(),
                           ": \"timestep_spacing\" must be linspace, leading or trailing, not \"",
                           printable(spacing, 64), "\""));
}

void read_reshape(const Fields& fields, const ClassDefaults& row, ScheduleArgs& args) {
  if (row.grid == kRounded || row.sampler == "euler_a") return;  // these know no other sigmas
  const std::pair<const char*, ScheduleKind> kinds[] = {
      {"use_karras_sigmas", ScheduleKind::kKarras},
      {"use_exponential_sigmas", ScheduleKind::kExponential},
      {"use_beta_sigmas", ScheduleKind::kBeta}};
  for (const auto& [key, kind] : kinds) {
    if (!fields.flag(key, false)) continue;
    require<FormatError>(!args.reshape, fields.name(), ": more than one of use_*_sigmas is set");
    args.reshape = kind;
  }
  if (!args.reshape) return;
  const bool karras = args.reshape == ScheduleKind::kKarras;
  // Solvers keep integer timesteps: rounded for Karras sigmas, cut off else.
  const bool cut_off = !karras || (row.sampler == "dpmpp_2m" &&
                                   fields.text("beta_schedule", row.betas) == "squaredcos_cap_v2");
  if (row.grid == kSolver) args.rounding = cut_off ? TimestepRounding::kDown : TimestepRounding::kNearest;
  if (row.sampler.starts_with("dpm2") && karras) args.rounding = TimestepRounding::kNearest;
  if (row.sampler == "euler") {
    args.sigma_min = fields.number("sigma_min", 0);
    args.sigma_max = fields.number("sigma_max", 0);
  }
}

void read_solver(const Fields& fields, const ClassDefaults& row, SamplingRequest& request) {
  SamplerOptions& options = request.options;
  if (row.sampler == "lms") options.order = row.order;
  if (row.grid != kSolver) return;
  const int order = fields.integer("solver_order", row.order, 1, 3);
  options.order = order;
  options.lower_order_final = fields.flag("lower_order_final", row.lower_order_final);
  // Singlestep forces it on wherever the last sigma is 0.
  if (row.sampler == "dpmpp_2s" && !request.schedule_args.end_at_sigma_min) options.lower_order_final = true;
  const std::string solver = fields.text("solver_type", "");
  if (row.sampler == "uni_pc_bh2") {
    fields.refuse(!fields.flag("predict_x0", true), "predict_x0 false");
    fields.refuse(!fields.empty_list("disable_corrector") && fields.has("disable_corrector"),
                  "disable_corrector");
    options.solver = solver == "bh1" ? SolverType::kBh1 : SolverType::kBh2;
  } else if (row.sampler != "deis") {
    const std::string algorithm = fields.text("algorithm_type", "dpmsolver++");
    options.solver = solver == "heun" ? SolverType::kHeun : SolverType::kMidpoint;
    const bool sde = algorithm == "sde-dpmsolver++" && row.sampler == "dpmpp_2m" && order > 1;
    if (sde) {
      request.sampler = order == 3 ? "dpmpp_3m_sde" : "dpmpp_2m_sde";
      options.step_noise = StepNoise::kIndependent;
      options.order = 1;  // the sampler's own
    }
    fields.refuse(!sde && algorithm != "dpmsolver++" && algorithm != "deis",
                  concat("algorithm_type \"", printable(algorithm, 64), "\" of order ", order));
    fields.refuse(fields.flag("euler_at_final", false), "euler_at_final");
    fields.refuse(fields.flag("use_lu_lambdas", false), "use_lu_lambdas");
  }
}

}  // namespace

DiffusersSchedulerConfig parse_diffusers_scheduler(std::string_view text, std::string_view name,
                                                   std::string_view class_name) {
  const Fields fields(text, name);
  DiffusersSchedulerConfig out;
  out.class_name = class_name.empty() ? fields.text("_class_name", "") : std::string(class_name);
  const ClassDefaults& row = find_class(out.class_name, fields.name());

  NoiseScheduleArgs& noise = out.noise;
  noise.train_steps = fields.integer("num_train_timesteps", 1000, 1, 100'000);
  noise.beta_start = fields.number("beta_start", row.beta_start);
  noise.beta_end = fields.number("beta_end", row.beta_end);
  noise.trained_betas = fields.numbers("trained_betas");
  require<FormatError>(!fields.has("trained_betas") || !noise.trained_betas.empty(), fields.name(),
                       ": \"trained_betas\" must hold at least one number");
  // Classes without the option ignore it.
  const bool knows_rescaling = row.sampler != "plms" && row.sampler != "lms" && row.sampler != "heun" &&
                               !row.sampler.starts_with("dpm2") && row.sampler != "dpmpp_sde" &&
                               row.sampler != "dpmpp_2s" && row.sampler != "deis";
  noise.zero_terminal_snr = knows_rescaling && fields.flag("rescale_betas_zero_snr", false);
  try {
    noise.beta_schedule = parse_beta_schedule(fields.text("beta_schedule", row.betas));
    out.prediction = parse_prediction(fields.text("prediction_type", "epsilon"));
  } catch (const UsageError& e) {
    throw FormatError(concat(fields.name(), ": ", e.what()));
  }

  fields.refuse(fields.flag("thresholding", false), "dynamic thresholding");
  fields.refuse(fields.flag("clip_sample", false), "clip_sample");
  fields.refuse(fields.flag("use_flow_sigmas", false), "use_flow_sigmas");
  fields.refuse(fields.text("variance_type", "fixed_small").starts_with("learned"), "a learned variance");
  fields.refuse(row.sampler == "plms" && fields.has("skip_prk_steps") && !fields.flag("skip_prk_steps", true),
                "PNDM with Runge-Kutta steps (skip_prk_steps false)");
  if ((row.sampler == "ddim" || row.sampler == "ddpm") && !fields.has("clip_sample"))
    log().warn("{}: \"clip_sample\" is missing; latents are not clipped", fields.name());

  SamplingRequest& request = out.request;
  request.sampler = row.sampler;
  request.schedule_is_set = true;
  ScheduleArgs& args = request.schedule_args;
  args.kind = read_spacing(fields, row);
  args.grid = row.grid;
  args.steps_offset = fields.integer("steps_offset", 0, 0, noise.train_steps - 1);
  args.lcm_original_steps = fields.integer("original_inference_steps", 50, 1, noise.train_steps);
  read_reshape(fields, row, args);
  const bool has_final_sigma = row.sampler == "euler" || (row.grid == kSolver && row.sampler != "deis");
  args.end_at_sigma_min = row.sampler == "deis" ||
                          (has_final_sigma && fields.text("final_sigmas_type", "zero") == "sigma_min") ||
                          ((row.sampler == "ddim" || row.sampler == "plms") &&
                           !fields.flag("set_alpha_to_one", row.to_alpha_one));
  if (row.grid == kSolver || (row.grid == kFractional && args.kind == kLeading))
    request.start_scale = StartScale::kVariancePreserving;
  request.finish_preserving = row.grid == kSolver;
  read_solver(fields, row, request);
  return out;
}

}  // namespace rocm_sd
