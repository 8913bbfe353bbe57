#include "pipeline/control_units.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "pipeline/options.hpp"

namespace rocm_sd {
namespace {

// Names by xinsir's numbers; the first of a number is the one that messages list.
struct TypeName {
  std::string_view name;
  int type;
  std::string_view label;
};
constexpr TypeName kTypes[] = {
    {"openpose", 0, "OpenPose"},    {"depth", 1, "Depth"},    {"softedge", 2, "Soft Edge"},
    {"scribble", 2, "Soft Edge"},   {"hed", 2, "Soft Edge"},  {"canny", 3, "Hard Edge"},
    {"lineart", 3, "Hard Edge"},    {"mlsd", 3, "Hard Edge"}, {"normal", 4, "Normal Map"},
    {"segment", 5, "Segmentation"}, {"tile", 6, "Tile"},      {"inpaint", 7, "Inpaint"},
};

void check_unit(const ResolvedRequest& r, size_t index, const LoadedControl& model) {
  const ResolvedControl& c = r.controls[index];
  const int64_t types = model.types();
  require<UsageError>(types == 0 || c.type, "control-type: ", printable(model.name),
                      " is a union ControlNet: expected what kind of image it sees (canny, depth, ...)");
  require<UsageError>(types > 0 || !c.type, "control-type: ", printable(model.name),
                      " is no union ControlNet and takes no type");
  require<UsageError>(types == 0 || *c.type < types, "control-type: ", printable(model.name), " knows ",
                      types, " types (0 to ", types - 1, "), got ", c.type.value_or(0));
  const bool tiled = r.tiles.height != r.latent_height || r.tiles.width != r.latent_width;
  const T2iAdapter* adapter = model.adapter();
  if (!adapter) return;
  const int64_t d = adapter->config().downscale;
  require<UsageError>(r.width % d == 0 && r.height % d == 0, "control: ", printable(model.name),
                      " is a T2I-Adapter for sizes that are multiples of ", d, ", got ", r.width, " x ",
                      r.height);
  require<UsageError>(c.mode == ControlMode::kBalanced, "control-mode: ", printable(model.name),
                      " is a T2I-Adapter, which acts balanced");
  require<UsageError>(c.preprocess.name != "inpaint", "control-preprocess: ", printable(model.name),
                      " is a T2I-Adapter, which has no inpaint");
  const int64_t height = r.tiles.height * kPixelsPerLatent, width = r.tiles.width * kPixelsPerLatent;
  require<UsageError>(!tiled || (height % d == 0 && width % d == 0), "tile-size: ", printable(model.name),
                      " is a T2I-Adapter for sizes that are multiples of ", d, ", got windows of ", width,
                      " x ", height);
}

// Images that one union ControlNet sees at once act in the same steps, for the same conditions.
void check_together(const ResolvedRequest& r, size_t first, size_t other, const LoadedControl& model) {
  const ResolvedControl &a = r.controls[first], &b = r.controls[other];
  require<UsageError>(a.start == b.start && a.end == b.end && a.mode == b.mode,
                      "control-start, control-end, control-mode: the images of the union ControlNet ",
                      printable(model.name), " act together: expected the same for all of them");
  require<UsageError>(!r.request.controls[first].mask && !r.request.controls[other].mask,
                      "control-mask: ", printable(model.name),
                      " sees several images at once, which one mask cannot tell apart");
}

}  // namespace

int parse_control_type(std::string_view text) {
  for (const TypeName& known : kTypes)
    if (known.name == text) return known.type;
  if (!text.empty() && text.find_first_not_of("0123456789") == text.npos)
    return static_cast<int>(parse_integer(text, 0, 63));
  std::vector<std::string> names;
  for (const TypeName& known : kTypes) names.emplace_back(known.name);
  throw UsageError(concat("control-type: expected a number or one of ", listed_names(names, names.size()),
                          ", got \"", printable(text, 40), "\""));
}

std::string control_type_label(int type) {
  for (const TypeName& known : kTypes)
    if (known.type == type) return std::string(known.label);
  return std::to_string(type);
}

std::vector<PlannedControl> plan_controls(const ResolvedRequest& r,
                                          const std::vector<std::shared_ptr<LoadedControl>>& controls) {
  std::vector<PlannedControl> out;
  for (size_t i = 0; i < controls.size(); ++i) {
    const LoadedControl& model = *controls[i];
    check_unit(r, i, model);
    const ControlUse& use = r.request.controls[i];
    const auto images = static_cast<int64_t>(std::max<size_t>(use.images.size(), 1));
    if (!out.empty() && out.back().unit.model == &model && model.types() > 0) {
      check_together(r, out.back().members.front(), i, model);
      out.back().unit.images = std::max(out.back().unit.images, images);
      out.back().members.push_back(i);
      ++out.back().unit.views;
      continue;
    }
    out.push_back({{&model, 1, images, use.mask.has_value()}, {i}});
  }
  return out;
}

std::vector<ControlSetting> control_settings(const ResolvedRequest& r,
                                             const std::vector<PlannedControl>& planned) {
  std::vector<ControlSetting> out;
  for (const PlannedControl& one : planned) {
    const ResolvedControl& first = r.controls[one.members.front()];
    const bool several = one.members.size() > 1;
    // Several images are weighed among each other; what the model makes of one is weighed as a whole.
    ControlSetting setting{several ? 1.0 : first.strength, first.start, first.end, first.mode, {}, {}};
    for (const size_t member : one.members) {
      const ResolvedControl& c = r.controls[member];
      ControlView view{control_pixels(r, member, one.unit.model->bgr()), c.type.value_or(0),
                       several ? c.strength : 1.0};
      view.pixels.resize(static_cast<size_t>(one.unit.images), view.pixels.front());
      setting.views.push_back(std::move(view));
    }
    if (one.unit.masked)
      setting.mask = mask_to_floats(*r.request.controls[one.members.front()].mask, static_cast<int>(r.width),
                                    static_cast<int>(r.height), 0);
    out.push_back(std::move(setting));
  }
  return out;
}

}  // namespace rocm_sd
