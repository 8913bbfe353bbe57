#include "apps/cli/tuning_problems.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "analysis/planned_model.hpp"
#include "apps/cli/values.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "kernels/choice_record.hpp"
#include "rocm_sd/pipeline.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd::cli {
namespace {

using measurement::PlannedWorkload;

DType compute_type(const std::string& name, const Device& device) {
  if (name == "auto") return device.preferred_dtype();
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
    if (name == dtype_name(type)) return type;
  throw UsageError(concat("dtype: expected auto, f32, f16 or bf16, got \"", printable(name), "\""));
}

void add_known_model(std::vector<PlannedWorkload>& out, const ProblemSource& source, const std::string& name,
                     const Device& device) {
  const KnownModel& model = known_model(name);
  const PictureShape shape{.height = source.height ? source.height : model.side,
                           .width = source.width ? source.width : model.side,
                           .batch = source.batch,
                           .guidance = !source.no_guidance};
  for (const PlannedChoice& choice :
       picture_problems(device, model, shape, source.steps, compute_type(source.dtype, device)))
    add_problem(out, choice.op, choice.problem, choice.count);
}

// A checkpoint is loaded and planned as `generate` would.
void add_checkpoint(std::vector<PlannedWorkload>& out, const ProblemSource& source, const std::string& path,
                    const std::string& device) {
  LoadOptions load;
  load.model = path;
  load.device = device;
  load.dtype = source.dtype;
  load.weights = source.weights;
  Pipeline pipeline = Pipeline::load(load);
  GenerateRequest request;
  request.prompt = "a";
  if (source.width) request.width = static_cast<int>(source.width);
  if (source.height) request.height = static_cast<int>(source.height);
  request.batch = static_cast<int>(source.batch);
  request.steps = source.steps;
  if (source.no_guidance) request.cfg_scale = 1;
  const ChoiceRecord record;
  (void)pipeline.plan(request);
  for (const ChoiceRecord::Choice& choice : record.choices()) add_problem(out, choice.op, choice.problem, 1);
}

// "linear 64x64x64 f16". Throws UsageError where that is no problem.
void add_text(std::vector<PlannedWorkload>& out, const std::string& line) {
  const size_t blank = std::min(line.find(' '), line.size());
  const std::string op = line.substr(0, blank), text = line.substr(std::min(blank + 1, line.size()));
  (void)measurement::parse_workload(op, text);
  add_problem(out, op, text, 1);
}

void add_file(std::vector<PlannedWorkload>& out, const std::string& path) {
  constexpr uint64_t kMaxBytes = 4 << 20;
  std::istringstream lines(read_file(path, kMaxBytes));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    try {
      add_text(out, line);
    } catch (const UsageError& error) {
      throw FormatError(concat(printable(path), ":", number, ": ", error.what()));
    }
  }
}

// "attention,linear,..."
std::string op_names() {
  std::string out;
  for (const AnyOp& op : all_ops()) out += concat(out.empty() ? "" : ",", op.name);
  return out;
}

// "linear,conv2d": only these stay.
void keep_ops(std::vector<PlannedWorkload>& problems, const std::string& ops) {
  std::istringstream names(ops);
  for (std::string op; std::getline(names, op, ',');)
    require<UsageError>(measurement::is_workload_op(op), "--ops: expected of ", op_names(), ", got \"",
                        printable(op), "\"");
  const std::string wanted = concat(",", ops, ",");
  std::erase_if(problems, [&](const PlannedWorkload& w) {
    return wanted.find(concat(",", w.op, ",")) == std::string::npos;
  });
}

bool is_known(const std::string& name) {
  return std::ranges::any_of(known_models(), [&](const KnownModel& model) { return model.name == name; });
}

bool is_path(const std::string& model) {
  return model.find('/') != std::string::npos || model.ends_with(".safetensors") || path_exists(model);
}

}  // namespace

void add_problem(std::vector<PlannedWorkload>& out, const std::string& op, const std::string& text,
                 double launches) {
  if (!measurement::is_workload_op(op)) return;
  const auto same =
      std::ranges::find_if(out, [&](const PlannedWorkload& w) { return w.op == op && w.text == text; });
  if (same != out.end())
    same->launches += launches;
  else
    out.push_back({op, text, launches});
}

Device& open_counting_device(const std::string& name) {
  if (name.starts_with("emu:")) measurement::count_emulated_launches();
  return device_named(name);
}

void add_problem_options(CLI::App* sub, ProblemSource& source) {
  sub->add_option("--model", source.models, "sd15, sd21, sdxl, sdxl-refiner, or a checkpoint's path; several")
      ->delimiter(',');
  sub->add_option("--shapes", source.file,
                  "a file with one \"op problem\" a line, or a model's name as for --model");
  sub->add_option("problems", source.problems,
                  "\"op problem\", as logs name them: \"linear 64x64x64 f16\"; several");
  sub->add_option("--ops,--op", source.ops, concat("only these: ", op_names()));
  sub->add_option("--dtype", source.dtype, "auto, f32, f16 or bf16 [auto]");
  sub->add_option("--weights", source.weights, "of a checkpoint's UNet: auto, int8 or fp8 [auto]");
  add_number(sub, "-W,--width", source.width, "pixels [the model's own]", 8, 16384);
  add_number(sub, "-H,--height", source.height, "pixels [the model's own]", 8, 16384);
  add_number(sub, "--batch", source.batch, "pictures at once [1]", 1, 1024);
  add_number(sub, "--steps", source.steps, "UNet runs a picture [20]", 1, 10000);
  sub->add_flag("--no-guidance", source.no_guidance, "one UNet pass a picture and step");
}

std::vector<PlannedWorkload> problems_of(const ProblemSource& source, Device& device) {
  require<UsageError>(
      !source.models.empty() || !source.file.empty() || !source.problems.empty(),
      "expected --model (sd15, sdxl, a checkpoint's path), --shapes FILE or a problem (\"linear "
      "64x64x64 f16\")");
  std::vector<PlannedWorkload> out;
  for (const std::string& problem : source.problems) add_text(out, problem);
  std::vector<std::string> models = source.models;
  const bool shapes_of_model = is_known(source.file) && !path_exists(source.file);
  if (shapes_of_model) models.push_back(source.file);
  const std::string device_name =
      device.kind() == DeviceKind::kHost ? "cpu" : device.name().substr(0, device.name().find(": "));
  for (const std::string& model : models)
    require<UsageError>(is_path(model) || source.weights == "auto", "--weights is of a checkpoint; ",
                        printable(model), " is planned without one");
  for (const std::string& model : models)
    is_path(model) ? add_checkpoint(out, source, model, device_name)
                   : add_known_model(out, source, model, device);
  if (!source.file.empty() && !shapes_of_model) add_file(out, source.file);
  if (!source.ops.empty()) keep_ops(out, source.ops);
  require<UsageError>(!out.empty(), "there is no problem", source.ops.empty() ? "" : " of ",
                      printable(source.ops), " in what was named");
  return out;
}

}  // namespace rocm_sd::cli
