// A request's ControlNets: defaults, rules, images, and their line in the infotext.
#include "base/error.hpp"
#include "pipeline/infotext.hpp"
#include "pipeline/pixels.hpp"
#include "pipeline/request.hpp"
#include "pipeline/request_guidance.hpp"

namespace rocm_sd {
namespace {

constexpr double kMaxStrength = 10;

ControlMode parse_mode(const std::string& name) {
  if (name == "balanced") return ControlMode::kBalanced;
  if (name == "prompt") return ControlMode::kPrompt;
  if (name == "control") return ControlMode::kControl;
  require<UsageError>(name == "guess", "control-mode: expected balanced, prompt, control or guess, got \"",
                      printable(name), "\"");
  return ControlMode::kGuess;
}

const char* mode_label(ControlMode mode) {
  switch (mode) {
    case ControlMode::kBalanced: return "Balanced";
    case ControlMode::kPrompt: return "My prompt is more important";
    case ControlMode::kControl: return "ControlNet is more important";
    case ControlMode::kGuess: return "Guess";
  }
  return "?";
}

// The options that a unit without a model has, for the message.
std::string options_of(const ControlUse& use) {
  std::string out;
  const auto note = [&](bool given, const char* name) {
    if (given) out += concat(out.empty() ? "" : ", ", name);
  };
  note(use.image.has_value(), "control-image");
  note(use.strength.has_value(), "control-strength");
  note(use.start.has_value(), "control-start");
  note(use.end.has_value(), "control-end");
  note(use.mode.has_value(), "control-mode");
  note(use.resize.has_value(), "control-resize");
  note(use.preprocess.has_value(), "control-preprocess");
  note(use.type.has_value(), "control-type");
  note(use.mask.has_value(), "control-mask");
  return out;
}

}  // namespace

std::vector<ResolvedControl> resolve_controls(const GenerateRequest& r) {
  std::vector<ResolvedControl> out;
  size_t models = 0;
  for (const ControlUse& use : r.controls) models += use.model.empty() ? 0 : 1;
  for (const ControlUse& use : r.controls) {
    require<UsageError>(!use.model.empty(), options_of(use), ": given ", r.controls.size(), " times for ",
                        models, " --control: the first belongs to the first, and so on");
    ResolvedControl c;
    c.model = use.model;
    c.strength = use.strength.value_or(1);
    require_range(c.strength, -kMaxStrength, kMaxStrength, "control-strength");
    c.start = use.start.value_or(0);
    c.end = use.end.value_or(1);
    require_part(c.start, c.end, "control");
    c.mode = parse_mode(use.mode.value_or("balanced"));
    c.resize = parse_control_resize(use.resize.value_or("crop"));
    c.preprocess = parse_control_preprocess(use.preprocess.value_or("none"));
    require<UsageError>(use.image || !use.images.empty() || r.init_image,
                        "control-image: ", printable(use.model),
                        ": expected an image for it to see, or an init-image");
    require<UsageError>(use.images.empty() || use.images.size() == static_cast<size_t>(r.batch),
                        "control-image: ", printable(use.model), ": expected one image for each of the ",
                        r.batch, " images of the batch, got ", use.images.size());
    if (use.type && *use.type != "none") c.type = parse_control_type(*use.type);
    require<UsageError>(c.preprocess.name != "inpaint" || r.mask,
                        "control-preprocess: inpaint: needs a mask");
    out.push_back(std::move(c));
  }
  return out;
}

std::vector<std::vector<float>> control_pixels(const ResolvedRequest& r, size_t index, bool bgr) {
  const ControlUse& use = r.request.controls.at(index);
  const ResolvedControl& control = r.controls.at(index);
  const int width = static_cast<int>(r.width), height = static_cast<int>(r.height);
  std::vector<float> mask;
  if (control.preprocess.name == "inpaint")
    mask = mask_to_floats(*r.request.mask, width, height, 0, r.request.mask_invert);
  std::vector<std::vector<float>> out;
  const auto add = [&](const Image& image) {
    const Image sized = resize_control(image, control.resize, width, height);
    out.push_back(control_floats(preprocess_control(sized, control.preprocess), bgr, mask));
  };
  for (const Image& image : use.images) add(image);
  if (use.images.empty()) add(use.image ? *use.image : *r.request.init_image);
  return out;
}

std::string describe_control(const ResolvedControl& c, const LoadedControl& model) {
  std::string out = concat("Module: ", c.preprocess.name, ", Model: ", model.name);
  if (!model.hash.empty()) out += concat(" [", model.hash, "]");
  out += concat(", Weight: ", c.strength, ", Resize Mode: ", control_resize_label(c.resize));
  if (c.preprocess.name == "canny")
    out += concat(", Threshold A: ", c.preprocess.low, ", Threshold B: ", c.preprocess.high);
  if (c.preprocess.name == "threshold" || c.preprocess.name == "scribble" ||
      c.preprocess.name == "scribble_xdog")
    out += concat(", Threshold A: ", c.preprocess.low);
  if (c.preprocess.name == "tile") out += concat(", Threshold A: ", c.preprocess.factor);
  if (c.type) out += concat(", Union Control Type: ", control_type_label(*c.type));
  out += concat(", Guidance Start: ", c.start, ", Guidance End: ", c.end,
                ", Pixel Perfect: True, Control Mode: ", mode_label(c.mode));
  return out;
}

}  // namespace rocm_sd
