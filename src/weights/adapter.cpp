#include "weights/adapter.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.hpp"
#include "base/text.hpp"
#include "weights/adapter_check.hpp"
#include "weights/adapter_keys.hpp"
#include "weights/file_hash.hpp"

namespace rocm_sd {

// Diffusers writes PEFT's configuration into the metadata: {"unet.lora_alpha": 8, "unet.alpha_pattern":
// {...}}.
class PeftConfig {
 public:
  PeftConfig(const Metadata& metadata, const std::string& what) {
    const auto found = metadata.find("lora_adapter_metadata");
    if (found == metadata.end()) return;
    json_ = parse_json(found->second, {}, concat(what, ": lora_adapter_metadata"));
    require<FormatError>(json_.is_object(), what, ": lora_adapter_metadata: expected an object");
  }
  // alpha / rank of a module, or nothing.
  std::optional<double> scale(Component of, std::string_view module, int64_t rank) const {
    const std::string component = concat(component_name(of), ".");
    const auto alpha = json_.find(component + "lora_alpha");
    if (alpha == json_.end() || !alpha->is_number()) return std::nullopt;
    double value = alpha->get<double>();
    if (const auto pattern = json_.find(component + "alpha_pattern");
        pattern != json_.end() && pattern->is_object())
      for (const auto& [name, own] : pattern->items())
        if (own.is_number() && (module == name || module.ends_with("." + name))) value = own.get<double>();
    const auto root = json_.find(component + "use_rslora");
    const bool by_root = root != json_.end() && root->is_boolean() && root->get<bool>();
    return value / (by_root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  }

 private:
  nlohmann::json json_ = nlohmann::json::object();
};

namespace {

constexpr size_t kNamedKeys = 10;  // that a message lists

using Parts = std::map<std::string, std::string>;  // role -> tensor

struct Grouped {
  std::map<std::string, Parts> modules;  // by stem
  std::vector<std::string> unknown;      // keys without a known role
};

Grouped group_keys(const TensorSet& tensors) {
  Grouped out;
  std::vector<std::string> rest;
  for (const TensorRef& tensor : tensors.tensors()) {
    const std::string& name = tensor.entry->name;
    const AdapterKey key = parse_adapter_key(name);
    if (key.role.empty()) {
      rest.push_back(name);
      continue;
    }
    const bool first = out.modules[std::string(key.stem)].emplace(key.role, name).second;
    require<FormatError>(first, printable(tensors.path().string()), ": ", printable(name),
                         ": the module has two tensors of this kind");
  }
  // IA3 names its vector plainly "weight", beside "on_input".
  for (const std::string& name : rest) {
    constexpr std::string_view kWeight = ".weight";
    const auto module = name.ends_with(kWeight)
                            ? out.modules.find(name.substr(0, name.size() - kWeight.size()))
                            : out.modules.end();
    if (module != out.modules.end() && module->second.contains("on_input"))
      module->second.emplace("ia3", name);
    else
      out.unknown.push_back(name);
  }
  return out;
}

std::optional<AdapterKind> kind_of(const Parts& parts) {
  const auto has = [&](const char* role) { return parts.contains(role); };
  if (has("down") || has("up")) return AdapterKind::kLora;
  if (has("hada_w1_a") || has("hada_w1_b") || has("hada_w2_a") || has("hada_w2_b")) return AdapterKind::kLoha;
  if (has("lokr_w1") || has("lokr_w1_a") || has("lokr_w2") || has("lokr_w2_a")) return AdapterKind::kLokr;
  if (has("ia3")) return AdapterKind::kIa3;
  if (has("diff") || has("diff_b")) return AdapterKind::kDifference;
  return std::nullopt;
}

std::string base_model_of(const Metadata& metadata) {
  for (const char* key : {"ss_base_model_version", "modelspec.architecture"})
    if (const auto found = metadata.find(key); found != metadata.end()) return found->second;
  return "";
}

// A flag, which tools store as a bool, an integer or a float.
bool flag(const WeightStore& tensors, const std::string& name) {
  const TensorEntry& entry = *tensors.at(name).ref.entry;
  require<FormatError>(entry.numel() == 1, tensors.title(), ": ", printable(name),
                       ": expected one value, got ", entry.shape);
  char bytes[8] = {};
  tensors.at(name).ref.file->read(entry, 0, std::min<uint64_t>(entry.bytes, sizeof bytes), bytes);
  return std::any_of(std::begin(bytes), std::end(bytes), [](char byte) { return byte != 0; });
}

// One value of an integer type, as some tools store alpha; nothing where it is of another type.
std::optional<int64_t> whole_number(const WeightStore& tensors, const std::string& name) {
  const StoredTensor& tensor = tensors.at(name);
  const TensorEntry& entry = *tensor.ref.entry;
  if (is_float(entry.dtype) || entry.dtype == DType::kBool) return std::nullopt;
  unsigned char bytes[8] = {};
  tensor.ref.file->read(entry, 0, std::min<uint64_t>(entry.bytes, sizeof bytes), bytes);
  uint64_t bits = 0;  // little endian
  for (uint64_t i = 0; i < entry.bytes; ++i) bits |= uint64_t{bytes[i]} << 8 * i;
  const int unused = 64 - 8 * static_cast<int>(entry.bytes);
  if (entry.dtype == DType::kU8) return static_cast<int64_t>(bits);
  return static_cast<int64_t>(bits << unused) >> unused;  // the sign fills the rest
}

double scalar(const WeightStore& tensors, const std::string& name) {
  require<FormatError>(tensors.shape(name).numel() == 1, tensors.title(), ": ", printable(name),
                       ": expected one number, got ", tensors.shape(name));
  if (const auto integer = whole_number(tensors, name)) return static_cast<double>(*integer);
  float value = 0;
  tensors.read(name, tensors.shape(name), DType::kF32, &value);
  require<FormatError>(std::isfinite(value), tensors.title(), ": ", printable(name),
                       ": expected a number, got ", value);
  return value;
}

// Which of a module's tensors change the weight, which the bias.
struct Roles {
  std::optional<AdapterKind> kind;
  bool weight = false, bias = false;
  explicit Roles(const Parts& parts) : kind(kind_of(parts)), bias(parts.contains("diff_b")) {
    weight = kind && (*kind != AdapterKind::kDifference || parts.contains("diff"));
  }
};

// Every tensor must belong to a layer of the model: a file for another model fits in places only.
void check_keys(const Grouped& grouped, const AdapterTargets& targets, const TensorSet& tensors,
                const std::string& what, std::string_view model_kind) {
  std::vector<std::string> strange = grouped.unknown;
  for (const auto& [stem, parts] : grouped.modules) {
    const Roles roles(parts);
    if (roles.kind && (!roles.weight || targets.find(stem, "weight")) &&
        (!roles.bias || targets.find(stem, "bias")))
      continue;
    for (const auto& [role, name] : parts) strange.push_back(name);
  }
  const std::string base = base_model_of(tensors.metadata());
  require<FormatError>(strange.empty(), what, ": ", strange.size(), " of ", tensors.tensors().size(),
                       " tensors belong to no layer of this ", model_kind,
                       " model: ", listed_names(strange, kNamedKeys),
                       base.empty() ? "" : concat("; the file says that it is for ", printable(base, 60)));
}

}  // namespace

std::string_view adapter_kind_name(AdapterKind kind) {
  switch (kind) {
    case AdapterKind::kLora: return "LoRA";
    case AdapterKind::kLoha: return "LoHa";
    case AdapterKind::kLokr: return "LoKr";
    case AdapterKind::kIa3: return "IA3";
    case AdapterKind::kDifference: return "difference";
  }
  return "";
}

std::shared_ptr<const AdapterFile> AdapterFile::open(const std::filesystem::path& path,
                                                     const AdapterTargets& targets,
                                                     std::string_view model_kind) {
  return of(TensorSet::open(path, FileAccess::kRead), targets, model_kind);
}

std::shared_ptr<const AdapterFile> AdapterFile::of(const TensorSet& tensors, const AdapterTargets& targets,
                                                   std::string_view model_kind) {
  const std::filesystem::path& path = tensors.path();
  const std::string what = concat("lora ", printable(path.filename().string()));
  std::map<std::string, StoredTensor, std::less<>> by_name;
  for (const TensorRef& ref : tensors.tensors()) {
    require<FormatError>(ref.entry->numel() > 0, what, ": ", printable(ref.entry->name), " ",
                         ref.entry->shape, ": expected at least one value");
    by_name[ref.entry->name] = {ref, ref.entry->shape};
  }
  std::shared_ptr<AdapterFile> file(
      new AdapterFile(path, WeightStore(Component::kUnet, what, tensors.files(), std::move(by_name))));

  const Grouped grouped = group_keys(tensors);
  require<FormatError>(!grouped.modules.empty(), what,
                       ": not a LoRA: no tensor has one of the names that LoRA files have");
  check_keys(grouped, targets, tensors, what, model_kind);
  const PeftConfig peft(file->metadata(), what);
  for (const auto& [stem, parts] : grouped.modules) file->add(stem, parts, targets, peft);
  file->check_finite();
  return file;
}

void AdapterFile::add(const std::string& stem, Parts parts, const AdapterTargets& targets,
                      const PeftConfig& peft) {
  const Roles roles(parts);
  const auto keep = [&](const AdapterTargets::Target& target, AdapterModule module) {
    module.block = target.block;
    check_module(tensors_, module, target.shape);
    const auto [at, added] = modules_[target.component].emplace(target.name, std::move(module));
    require<FormatError>(added, tensors_.title(), ": ", printable(stem), " and ", printable(at->second.key),
                         " change the same weight ", target.name);
  };
  if (roles.bias) {
    const AdapterTargets::Target& target = *targets.find(stem, "bias");
    keep(target, {AdapterKind::kDifference, stem, target.name, {{"diff", parts.at("diff_b")}}});
    parts.erase("diff_b");
  }
  if (!roles.weight) return;
  const AdapterTargets::Target& target = *targets.find(stem, "weight");
  AdapterModule module{*roles.kind, stem, target.name, std::move(parts)};
  module.rank = rank_of(module, tensors_);
  if (module.is_dora()) module.magnitude_on_input = magnitude_is_on_input(module, tensors_);
  if (module.has("on_input")) module.on_input = flag(tensors_, module.parts.at("on_input"));
  if (module.rank > 0) {
    const std::string_view layer = std::string_view(target.name).substr(0, target.name.rfind('.'));
    module.scale = module.has("alpha")
                       ? scalar(tensors_, module.parts.at("alpha")) / static_cast<double>(module.rank)
                       : peft.scale(target.component, layer, module.rank).value_or(1.0);
  }
  keep(target, std::move(module));
}

void AdapterFile::check_finite() const {
  std::vector<const std::pair<const std::string, StoredTensor>*> all;
  for (const auto& entry : tensors_.weights()) {
    const std::string role = parse_adapter_key(entry.first).role;
    const bool whole_alpha = role == "alpha" && !is_float(entry.second.dtype());
    if (role != "on_input" && !whole_alpha) all.push_back(&entry);  // on_input is a flag
  }
  std::exception_ptr error;
  size_t first = all.size();  // of the tensors with an error: the same one is named each time
#pragma omp parallel
  {
    std::vector<float> values;
#pragma omp for schedule(dynamic)
    for (size_t i = 0; i < all.size(); ++i) {
      try {
        const auto& [name, tensor] = *all[i];
        values.resize(static_cast<size_t>(tensor.shape.numel()));
        tensors_.read(name, tensor.shape, DType::kF32, values.data());
        const auto bad =
            std::count_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
        require<FormatError>(bad == 0, tensors_.title(), ": ", printable(name), ": ", bad, " of ",
                             values.size(), " values are not finite");
      } catch (...) {
#pragma omp critical(rocm_sd_adapter_finite)
        if (i < first) {
          first = i;
          error = std::current_exception();
        }
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

const AdapterFile::Modules& AdapterFile::modules(Component component) const {
  static const Modules none;
  const auto found = modules_.find(component);
  return found == modules_.end() ? none : found->second;
}

size_t AdapterFile::size() const {
  size_t sum = 0;
  for (const auto& [component, modules] : modules_) sum += modules.size();
  return sum;
}

const Shape& AdapterFile::shape(const AdapterModule& module, const std::string& role) const {
  return tensors_.shape(module.parts.at(role));
}

std::vector<float> AdapterFile::values(const AdapterModule& module, const std::string& role) const {
  const std::string& name = module.parts.at(role);
  std::vector<float> out(static_cast<size_t>(tensors_.shape(name).numel()));
  tensors_.read(name, tensors_.shape(name), DType::kF32, out.data());
  return out;
}

const std::string& AdapterFile::hash() const {
  std::call_once(hashed_, [this] {
    const auto given = metadata().find("sshs_model_hash");
    hash_ =
        given != metadata().end() && given->second.size() == 64 ? given->second : sha256_of_tensors(path_);
  });
  return hash_;
}

std::optional<AdapterSummary> summarise_adapter(const TensorSet& tensors) {
  const Grouped grouped = group_keys(tensors);
  AdapterSummary out;
  for (const auto& [stem, parts] : grouped.modules) {
    const auto kind = kind_of(parts);
    if (!kind) continue;
    std::string algorithm(adapter_kind_name(*kind));
    if (parts.contains("magnitude")) algorithm = concat("DoRA (", algorithm, ")");
    ++out.algorithms[algorithm];
    const bool second = stem.starts_with("lora_te2_") || stem.starts_with("text_encoder_2.");
    const bool first =
        stem.starts_with("lora_te_") || stem.starts_with("lora_te1_") || stem.starts_with("text_encoder.");
    ++out.components[second ? "text_encoder_2" : first ? "text_encoder" : "unet"];
    for (const char* role : {"down", "hada_w1_b", "lokr_w2_b"})
      if (const auto part = parts.find(role); part != parts.end())
        if (const Shape& shape = tensors.find(part->second)->shape; shape.rank() > 0) ++out.ranks[shape[0]];
  }
  if (out.algorithms.empty()) return std::nullopt;
  out.unknown = static_cast<int64_t>(grouped.unknown.size());
  out.base_model = base_model_of(tensors.metadata());
  return out;
}

}  // namespace rocm_sd
