// Options of ControlNets: each may be given several times, once for each of them.
#include <algorithm>
#include <filesystem>

#include "base/file.hpp"
#include "base/text.hpp"
#include "pipeline/option_tables.hpp"

namespace rocm_sd::option_tables {
namespace {

constexpr size_t kMaxControls = 8;

// The n-th time an option of ControlNets is given it belongs to the n-th one: the first that lacks it.
template <class Lacks>
ControlUse& control_without(OptionTargets& t, const Lacks& lacks) {
  std::vector<ControlUse>& controls = request_of(t).controls;
  for (ControlUse& use : controls)
    if (lacks(use)) return use;
  require<UsageError>(controls.size() < kMaxControls, "given more than ", kMaxControls, " times");
  return controls.emplace_back();
}
template <class Value>
ControlUse& control_without(OptionTargets& t, std::optional<Value> ControlUse::* field) {
  return control_without(t, [field](const ControlUse& use) { return !(use.*field); });
}
Setter control_number(std::optional<double> ControlUse::* field, double least, double most) {
  return [=](OptionTargets& t, std::string_view v) {
    control_without(t, field).*field = parse_number(v, least, most);
  };
}
Setter control_text(std::optional<std::string> ControlUse::* field) {
  return [=](OptionTargets& t, std::string_view v) { control_without(t, field).*field = std::string(v); };
}

}  // namespace

std::vector<Image> load_image_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string ending = entry.path().extension().string();
    if (ending == ".png" || ending == ".jpg" || ending == ".jpeg" || ending == ".webp")
      paths.push_back(entry.path());
  }
  require<FileError>(!error && !paths.empty(), printable(folder),
                     ": expected a folder of pictures (.png, .jpg, .webp)", error ? ": " : "",
                     error ? error.message() : "");
  constexpr size_t kMaxBatch = 64;
  require<UsageError>(paths.size() <= kMaxBatch, printable(folder), ": expected at most ", kMaxBatch,
                      " pictures, found ", paths.size());
  std::sort(paths.begin(), paths.end());
  std::vector<Image> out;
  for (const fs::path& path : paths) out.push_back(load_image(path.string()));
  return out;
}

namespace {

void set_control_model(OptionTargets& t, std::string_view v) {
  require<UsageError>(!v.empty(), "expected a file or folder, got an empty text");
  control_without(t, [](const ControlUse& use) { return use.model.empty(); }).model = v;
}
void set_control_image(OptionTargets& t, std::string_view v) {
  if (is_folder_path(std::string(v))) {
    const auto lacks = [](const ControlUse& use) { return !use.image && use.images.empty(); };
    ControlUse& use = control_without(t, lacks);
    use.images = load_image_folder(std::string(v));
    return;
  }
  Image image = read_picture(v);
  const auto lacks = [](const ControlUse& use) { return !use.image && use.images.empty(); };
  control_without(t, lacks).image = std::move(image);
}

void set_control_mask(OptionTargets& t, std::string_view v) {
  Image image{1, 1, {255, 255, 255}, {}};  // "none": everywhere
  if (v != "none") image = read_picture(v);
  control_without(t, &ControlUse::mask).mask = std::move(image);
}

}  // namespace

std::vector<OptionRow> control_options() {
  return {
      {"control", "", "ControlNet", "PATH",
       "model: Diffusers' folder or a .safetensors file; may be given several times, and then the first of "
       "the options "
       "below belongs to the first, and so on",
       set_control_model, true},
      {"control-image", "", "ControlNet", "FILE",
       "what it sees: edges, a depth map, ...; of a folder one picture for each of the batch [the init "
       "image]",
       set_control_image, true},
      {"control-type", "", "ControlNet", "NAME",
       "what kind of picture a union ControlNet sees: openpose, depth, softedge, canny, normal, segment, "
       "tile, "
       "inpaint, or its number; one that is named several times in a row sees all its pictures at once",
       control_text(&ControlUse::type), true},
      {"control-mask", "", "ControlNet", "FILE",
       "where it acts: white, and in part grey; none: everywhere [none]", set_control_mask, true},
      {"control-strength", "", "ControlNet", "X", "factor of what it adds to the UNet [1]",
       control_number(&ControlUse::strength, -10, 10), true},
      {"control-start", "", "ControlNet", "X", "share of the steps after which it acts [0]",
       control_number(&ControlUse::start, 0, 1), true},
      {"control-end", "", "ControlNet", "X", "share of the steps up to which it acts [1]",
       control_number(&ControlUse::end, 0, 1), true},
      {"control-mode", "", "ControlNet", "NAME",
       "balanced; prompt, control: A1111's \"... is more important\"; guess: Diffusers' guess mode "
       "[balanced]",
       control_text(&ControlUse::mode), true},
      {"control-resize", "", "ControlNet", "HOW",
       "a picture of another shape: just (stretched), crop (the middle), fill (with its border's colour) "
       "[crop]",
       control_text(&ControlUse::resize), true},
      {"control-preprocess", "", "ControlNet", "NAME",
       "none, canny[:LOW:HIGH], invert, grey, tile[:FACTOR], inpaint (of the mask), threshold[:T], "
       "scribble[:T] (of "
       "dark lines), scribble_xdog[:T] (of a photo), scribble_hed (of soft edges) [none]",
       control_text(&ControlUse::preprocess), true},
  };
}

}  // namespace rocm_sd::option_tables
