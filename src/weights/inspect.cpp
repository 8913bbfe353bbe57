#include "weights/inspect.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/format.hpp"
#include "weights/diffusers_folder.hpp"
#include "weights/inspect_adapters.hpp"
#include "weights/layout.hpp"
#include "weights/scaled_fp8.hpp"

namespace rocm_sd {
namespace {

namespace fs = std::filesystem;
using Report = nlohmann::ordered_json;

constexpr size_t kShownNames = 20;

Report dtype_table(const std::vector<TensorRef>& refs) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> table;
  for (const TensorRef& ref : refs) {
    auto& [tensors, bytes] = table[std::string(ref.entry->stored_name())];
    ++tensors;
    bytes += ref.entry->stored_bytes();
  }
  Report out = Report::object();
  for (const auto& [name, counts] : table) out[name] = {{"tensors", counts.first}, {"bytes", counts.second}};
  return out;
}

uint64_t elements(const std::vector<TensorRef>& refs) {
  uint64_t total = 0;
  for (const TensorRef& ref : refs) total += static_cast<uint64_t>(ref.entry->numel());
  return total;
}
uint64_t bytes_of(const std::vector<TensorRef>& refs) {
  uint64_t total = 0;
  for (const TensorRef& ref : refs) total += ref.entry->stored_bytes();
  return total;
}

void add_component(Report& report, std::string_view name, std::string_view layout,
                   const std::vector<TensorRef>& refs) {
  report["components"].push_back({{"name", name},
                                  {"layout", layout},
                                  {"parameters", elements(refs)},
                                  {"bytes", bytes_of(refs)},
                                  {"dtypes", dtype_table(refs)}});
}

// Of the component that was added last.
void add_scaled_fp8(Report& report, const std::vector<TensorRef>& refs) {
  const ScaledFp8Counts fp8 = count_scaled_fp8(refs);
  if (fp8.layers > 0)
    report["components"].back()["scaled_fp8"] = {
        {"layers", fp8.layers}, {"input_scales", fp8.input_scales}, {"formats", fp8.formats}};
}

void add_largest(Report& report, std::vector<TensorRef> refs, size_t largest) {
  const size_t shown = std::min(largest, refs.size());
  std::partial_sort(refs.begin(), refs.begin() + static_cast<ptrdiff_t>(shown), refs.end(),
                    [](const TensorRef& a, const TensorRef& b) {
                      const uint64_t of_a = a.entry->stored_bytes(), of_b = b.entry->stored_bytes();
                      return of_a != of_b ? of_a > of_b : a.entry->name < b.entry->name;
                    });
  report["tensors"] = refs.size();
  report["largest"] = Report::array();
  for (size_t i = 0; i < shown; ++i) {
    const TensorEntry& entry = *refs[i].entry;
    report["largest"].push_back({{"name", entry.name},
                                 {"dtype", entry.stored_name()},
                                 {"shape", entry.shape.dims()},
                                 {"bytes", entry.stored_bytes()}});
  }
}

// Type and prediction as the loader sees them, or the reason why it would refuse. open: Checkpoint() or const
// Checkpoint&().
template <class Open>
void add_kind(Report& report, const Open& open, bool known, const CheckpointCheck& check) {
  try {
    const Checkpoint& checkpoint = open();
    const int channels = checkpoint.in_channels();
    if (checkpoint.find(Component::kUnet) != nullptr) {
      report["type"] = model_kind_name(checkpoint.kind());
      const std::string_view variant = unet_variant(channels);
      report["variant"] = variant.empty() ? "text to image" : variant;
      report["in_channels"] = channels;
      report["prediction"] = prediction_name(checkpoint.prediction());
      report["prediction_source"] = checkpoint.prediction_source();
      report["zero_terminal_snr"] = checkpoint.zero_terminal_snr();
    } else {
      report["type"] = "component";
    }
    report["notes"] = checkpoint.notes();
    known = false;  // what follows leaves the type
    if (check) check(checkpoint);
  } catch (const Error& error) {
    if (known) report["type"] = "unknown";
    report["problem"] = error.what();
  }
}

// Whether the component's names can be mapped at all; where not, add_kind has said why.
bool maps(const LayoutPart& part, const std::vector<NamedTensor>& named) {
  try {
    map_names(part.component, part.style, named);
    return true;
  } catch (const FormatError&) {
    return false;
  }
}

Report inspect_file(const fs::path& path, size_t largest, const CheckpointCheck& check) {
  const TensorSet tensors = TensorSet::open(path);
  Report report = {{"path", printable(path.native(), 4096)}, {"bytes", 0}};
  uint64_t bytes = 0;
  for (const auto& file : tensors.files()) bytes += file->file_bytes();
  report["bytes"] = bytes;
  const std::vector<LayoutPart> parts = find_parts(tensors);
  const std::string foreign = describe_foreign(tensors);
  report["type"] = foreign.empty() ? "unknown" : foreign;
  add_kind(report, [&] { return Checkpoint::open(tensors); }, !parts.empty(), check);
  report["components"] = Report::array();
  KeyReport keys;
  for (const LayoutPart& part : parts) {
    const std::vector<NamedTensor> named = tensors_of(tensors, part, parts);
    std::vector<TensorRef> refs;
    for (const NamedTensor& tensor : named) refs.push_back(tensor.ref);
    add_component(report, component_name(part.component), name_style_name(part.style), refs);
    add_scaled_fp8(report, refs);
    if (report.contains("problem") && !maps(part, named)) continue;  // what the problem says
    MappedNames mapped = map_names(part.component, part.style, named);
    keys.unexpected.insert(keys.unexpected.end(), mapped.unexpected.begin(), mapped.unexpected.end());
    keys.harmless.insert(keys.harmless.end(), mapped.harmless.begin(), mapped.harmless.end());
  }
  sort_leftovers(tensors, parts, keys);
  if (parts.empty()) add_component(report, "tensors", "unknown", tensors.tensors());
  if (parts.empty()) describe_adapter(report, tensors);
  report["metadata"] = tensors.metadata();
  add_largest(report, tensors.tensors(), largest);
  report["harmless"] = keys.harmless;
  report["unexpected"] = keys.unexpected;
  return report;
}

// Of a ControlNet, a T2I-Adapter or a component: diffusion_pytorch_model.*, or an encoder's model.*.
fs::path weights_of_folder(const fs::path& folder) {
  std::vector<std::string> notes;
  const bool encoder = path_exists(folder / "model.safetensors") ||
                       path_exists(folder / "model.safetensors.index.json") ||
                       path_exists(folder / "pytorch_model.bin");
  return component_weights(folder, encoder ? Component::kTextEncoder : Component::kUnet, "", notes);
}

Report inspect_folder(const fs::path& path, size_t largest, const CheckpointCheck& check) {
  const Checkpoint checkpoint = Checkpoint::open(path);
  Report report = {{"path", printable(path.native(), 4096)}, {"bytes", 0}, {"type", "unknown"}};
  add_kind(report, [&]() -> const Checkpoint& { return checkpoint; }, true, check);
  report["components"] = Report::array();
  uint64_t bytes = 0;
  std::vector<TensorRef> all;
  for (const Component component : kComponents) {
    const WeightStore* store = checkpoint.find(component);
    if (store == nullptr) continue;
    std::vector<TensorRef> refs;
    for (const auto& [name, weight] : store->weights()) refs.push_back(weight.ref);
    std::vector<TensorRef> stored;
    for (const auto& file : store->files()) {
      bytes += file->file_bytes();
      for (const TensorEntry& entry : file->entries()) stored.push_back({file.get(), &entry});
    }
    add_component(report, component_name(component), "diffusers folder", refs);
    add_scaled_fp8(report, stored);
    all.insert(all.end(), refs.begin(), refs.end());
  }
  report["bytes"] = bytes;
  report["metadata"] = checkpoint.metadata();
  add_largest(report, std::move(all), largest);
  const KeyReport keys = checkpoint.key_report();
  report["harmless"] = keys.harmless;
  report["unexpected"] = keys.unexpected;
  return report;
}

std::string count_text(uint64_t count) {
  if (count >= 1'000'000'000) return fmt::format("{:.2f} G", static_cast<double>(count) / 1e9);
  if (count >= 1'000'000) return fmt::format("{:.1f} M", static_cast<double>(count) / 1e6);
  return fmt::format("{}", count);
}
std::string size_text(uint64_t bytes) {
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{} bytes", bytes);
}

std::string text_of(const Report& report, const char* key) {
  const auto it = report.find(key);
  return it != report.end() && it->is_string() ? printable(it->get<std::string>(), 1000) : std::string();
}

void append_names(std::string& out, std::string_view title, const Report& names) {
  if (names.empty()) return;
  fmt::format_to(std::back_inserter(out), "{} ({})\n", title, names.size());
  size_t shown = 0;
  for (const auto& name : names) {
    if (shown++ == kShownNames) {
      out += "  ...\n";
      break;
    }
    out += "  " + printable(name.get<std::string>(), 1000) + '\n';
  }
}

}  // namespace

Report inspect(const fs::path& path, size_t largest, const CheckpointCheck& check) {
  const bool folder = is_folder_path(path);
  if (folder && path_exists(path / "config.json") && !path_exists(path / "model_index.json"))
    return inspect_file(weights_of_folder(path), largest, check);
  return folder || path.filename() == "model_index.json" ? inspect_folder(path, largest, check)
                                                         : inspect_file(path, largest, check);
}

std::string inspect_text(const Report& report) {
  std::string out;
  const auto line = [&out](std::string_view name, const std::string& value) {
    if (!value.empty()) fmt::format_to(std::back_inserter(out), "{:<12} {}\n", name, value);
  };
  line("file", text_of(report, "path"));
  line("size", concat(size_text(report.at("bytes").get<uint64_t>()), ", ",
                      report.at("tensors").get<uint64_t>(), " tensors"));
  const std::string variant = text_of(report, "variant");
  line("type", text_of(report, "type") + (variant.empty() ? "" : ", " + variant));
  if (report.contains("prediction"))
    line("predicts", concat(text_of(report, "prediction"), " (", text_of(report, "prediction_source"), ")",
                            report.at("zero_terminal_snr").get<bool>() ? ", zero terminal SNR" : ""));
  line("problem", text_of(report, "problem"));
  out += adapter_text(report);
  out += "components\n";
  for (const auto& component : report.at("components")) {
    std::string dtypes;
    for (const auto& [name, counts] : component.at("dtypes").items())
      dtypes += concat(dtypes.empty() ? "" : ", ", name, " ", counts.at("tensors").get<uint64_t>(), "x ",
                       size_text(counts.at("bytes").get<uint64_t>()));
    fmt::format_to(
        std::back_inserter(out), "  {:<15} {:>9} parameters  {:>10}  {:<16} {}\n",
        component.at("name").get<std::string>(), count_text(component.at("parameters").get<uint64_t>()),
        size_text(component.at("bytes").get<uint64_t>()), component.at("layout").get<std::string>(), dtypes);
    if (const auto fp8 = component.find("scaled_fp8"); fp8 != component.end())
      fmt::format_to(std::back_inserter(out),
                     "  {:<15} scaled fp8: {} layers with a factor, {} with one for inputs{}\n", "",
                     fp8->at("layers").get<uint64_t>(), fp8->at("input_scales").get<uint64_t>(),
                     fp8->at("formats").get<uint64_t>() ? ", formats in comfy_quant" : "");
  }
  if (!report.at("metadata").empty()) out += "metadata\n";
  for (const auto& [key, value] : report.at("metadata").items())
    out += "  " + printable(key) + ": " + printable(value.get<std::string>(), 400) + '\n';
  out += "largest tensors\n";
  for (const auto& tensor : report.at("largest"))
    fmt::format_to(std::back_inserter(out), "  {:>10}  {:<8} {:<20} {}\n",
                   size_text(tensor.at("bytes").get<uint64_t>()), tensor.at("dtype").get<std::string>(),
                   tensor.at("shape").dump(), printable(tensor.at("name").get<std::string>(), 1000));
  if (report.contains("notes")) append_names(out, "notes", report.at("notes"));
  append_names(out, "keys that no model needs", report.at("harmless"));
  append_names(out, "unexpected keys", report.at("unexpected"));
  return out;
}

}  // namespace rocm_sd
