#include "weights/adapter.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.hpp"
#include "weights/adapter_keys.hpp"
#include "weights/file_hash.hpp"
#include "weights/ldm_export.hpp"

namespace rocm_sd {
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

std::string list_keys(const std::vector<std::string>& keys) {
  std::string names;
  for (size_t i = 0; i < std::min(keys.size(), kNamedKeys); ++i)
    names += concat(i ? ", " : "", printable(keys[i]));
  return keys.size() > kNamedKeys ? concat(names, ", and ", keys.size() - kNamedKeys, " more") : names;
}

// Diffusers writes PEFT's configuration into the metadata: {"unet.lora_alpha": 8, "unet.alpha_pattern":
// {...}}.
struct PeftConfig {
  nlohmann::json json = nlohmann::json::object();
  std::string component;  // "unet."

  PeftConfig(const Metadata& metadata, Component of, const std::string& what)
      : component(concat(component_name(of), ".")) {
    const auto found = metadata.find("lora_adapter_metadata");
    if (found == metadata.end()) return;
    json = parse_json(found->second, {}, concat(what, ": lora_adapter_metadata"));
    require<FormatError>(json.is_object(), what, ": lora_adapter_metadata: expected an object");
  }
  // alpha / rank of a module, or nothing.
  std::optional<double> scale(std::string_view module, int64_t rank) const {
    const auto alpha = json.find(component + "lora_alpha");
    if (alpha == json.end() || !alpha->is_number()) return std::nullopt;
    double value = alpha->get<double>();
    if (const auto pattern = json.find(component + "alpha_pattern");
        pattern != json.end() && pattern->is_object())
      for (const auto& [name, own] : pattern->items())
        if (own.is_number() && (module == name || module.ends_with("." + name))) value = own.get<double>();
    const auto root = json.find(component + "use_rslora");
    const bool by_root = root != json.end() && root->is_boolean() && root->get<bool>();
    return value / (by_root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  }
};

// Sizes of one module's parts, checked against each other and against the weight.
class ModuleCheck {
 public:
  ModuleCheck(const WeightStore& tensors, const AdapterModule& module, const Shape& target)
      : tensors_(tensors), module_(module), target_(target) {}

  void operator()() const {
    switch (module_.kind) {
      case AdapterKind::kLora: lora(); break;
      case AdapterKind::kLoha: loha(); break;
      case AdapterKind::kLokr: lokr(); break;
      case AdapterKind::kIa3: fits(part("ia3").numel() == (module_.on_input ? in() : out()), "ia3"); break;
      case AdapterKind::kDifference: fits(part("diff").numel() == target_.numel(), "diff"); break;
    }
    if (!module_.is_dora()) return;
    const Shape& magnitude = part("magnitude");
    fits(magnitude.numel() == out() || magnitude.numel() == in(), "magnitude");
  }

  const Shape& part(const std::string& role) const {
    const auto found = module_.parts.find(role);
    require<FormatError>(found != module_.parts.end(), tensors_.title(), ": ", printable(module_.key),
                         ": the module has ", list_roles(), " and no ", role);
    return tensors_.shape(found->second);
  }

 private:
  int64_t out() const { return target_[0]; }
  int64_t in() const { return target_.rank() > 1 ? target_[1] : 1; }
  int64_t inner() const { return target_.numel() / out(); }  // in * kh * kw
  int64_t pixels() const { return inner() / in(); }

  std::string list_roles() const {
    std::string roles;
    for (const auto& [role, name] : module_.parts) roles += concat(roles.empty() ? "" : ", ", role);
    return roles;
  }
  void fits(bool ok, const std::string& role) const {
    require<ShapeError>(ok, tensors_.title(), ": ", printable(module_.parts.at(role)), " ", part(role),
                        " does not fit ", module_.target, " ", target_,
                        " of this model: was the file made for another base model?");
  }
  void same_rank(int64_t a, int64_t b, const char* first, const char* second) const {
    require<FormatError>(a == b, tensors_.title(), ": ", printable(module_.key), ": ", first, " is of rank ",
                         a, ", ", second, " of rank ", b);
  }
  int64_t dim(const std::string& role, int i) const {
    const Shape& shape = part(role);
    require<FormatError>(shape.rank() >= 2, tensors_.title(), ": ", printable(module_.parts.at(role)),
                         ": expected a matrix or filter, got ", shape);
    return shape[i];
  }
  // [rows,columns...]: columns may be spread over the filter's dimensions.
  void matrix(const std::string& role, int64_t rows, int64_t columns) const {
    fits(dim(role, 0) == rows && part(role).numel() == rows * columns, role);
  }

  void lora() const {
    const int64_t rank = dim("down", 0);
    same_rank(rank, dim("up", 1), "down", "up");
    matrix("up", out(), rank);
    if (!module_.has("mid")) return matrix("down", rank, inner());
    matrix("down", rank, in());
    matrix("mid", rank, rank * pixels());
  }
  void loha() const {
    for (const char* half : {"hada_w1", "hada_w2"}) {
      const std::string a = concat(half, "_a"), b = concat(half, "_b"), t = concat("hada_t", half[6]);
      const int64_t rank = dim(b, 0);
      if (module_.has(t)) {  // Tucker: a [rank,out], b [rank,in], t [rank,rank,kh,kw]
        matrix(a, dim(a, 0), out());
        matrix(b, rank, in());
        matrix(t, dim(a, 0), rank * pixels());
      } else {
        same_rank(dim(a, 1), rank, a.c_str(), b.c_str());
        matrix(a, out(), rank);
        matrix(b, rank, inner());
      }
    }
  }
  void lokr() const {
    const auto rows_columns = [&](const char* side) -> std::pair<int64_t, int64_t> {
      const std::string whole = side, a = concat(side, "_a"), b = concat(side, "_b");
      if (module_.has(whole)) return {dim(whole, 0), part(whole).numel() / dim(whole, 0)};
      if (whole == "lokr_w2" && module_.has("lokr_t2")) {
        matrix("lokr_t2", dim(a, 0), dim(b, 0) * pixels());
        return {dim(a, 1), dim(b, 1) * pixels()};
      }
      same_rank(dim(a, 1), dim(b, 0), a.c_str(), b.c_str());
      return {dim(a, 0), part(b).numel() / dim(b, 0)};
    };
    const auto [rows1, columns1] = rows_columns("lokr_w1");
    const auto [rows2, columns2] = rows_columns("lokr_w2");
    require<ShapeError>(rows1 * rows2 == out() && columns1 * columns2 == inner(), tensors_.title(), ": ",
                        printable(module_.key), ": [", rows1, ",", columns1, "] x [", rows2, ",", columns2,
                        "] does not fit ", module_.target, " ", target_,
                        " of this model: was the file made for another base model?");
  }

  const WeightStore& tensors_;
  const AdapterModule& module_;
  const Shape& target_;
};

// The rank that alpha is divided by; 0 where there is none (whole matrices, vectors).
int64_t rank_of(const AdapterModule& module, const WeightStore& tensors) {
  const auto rows = [&](const char* role) -> int64_t {
    const auto found = module.parts.find(role);
    if (found == module.parts.end()) return 0;
    const Shape& shape = tensors.shape(found->second);
    return shape.rank() > 0 ? shape[0] : 0;
  };
  switch (module.kind) {
    case AdapterKind::kLora: return rows("down");
    case AdapterKind::kLoha: return rows("hada_w1_b");
    case AdapterKind::kLokr: return rows("lokr_w2_b") ? rows("lokr_w2_b") : rows("lokr_w1_b");
    default: return 0;
  }
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

double scalar(const WeightStore& tensors, const std::string& name) {
  require<FormatError>(tensors.shape(name).numel() == 1, tensors.title(), ": ", printable(name),
                       ": expected one number, got ", tensors.shape(name));
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
                       " tensors belong to no layer of this ", model_kind, " model: ", list_keys(strange),
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

void AdapterTargets::add_stem(std::string stem, const Target& target) {
  const size_t dot = target.name.rfind('.');
  targets_.try_emplace(stem + target.name.substr(dot), target);
}

void AdapterTargets::add(const WeightStore& store) {
  const Component component = store.component();
  const bool unet = component == Component::kUnet;
  if (!unet && component != Component::kTextEncoder && component != Component::kTextEncoder2) return;
  std::optional<LdmUnetExport> ldm;
  if (unet) ldm.emplace(store);
  for (const auto& [name, weight] : store.weights()) {
    const size_t dot = name.rfind('.');
    if (dot == name.npos) continue;
    const std::string module = name.substr(0, dot);
    const Target target{component, name, weight.shape};
    if (unet) {
      for (const char* prefix : {"lora_unet_", "lycoris_unet_", "lycoris_"})
        add_stem(prefix + with_underscores(module), target);
      for (const char* prefix : {"unet.", ""}) {
        add_stem(prefix + module, target);
        if (const std::string processor = processor_stem(module); !processor.empty())
          add_stem(prefix + processor, target);
      }
      if (const auto original = ldm->ldm_name(name)) {
        const std::string ldm_module = original->substr(0, original->rfind('.'));
        add_stem("lora_unet_" + with_underscores(ldm_module), target);
        add_stem("diffusion_model." + ldm_module, target);
      }
      continue;
    }
    const bool first = component == Component::kTextEncoder;
    constexpr std::string_view kModel = "text_model.";
    const std::vector<std::string> kohya =
        first ? std::vector<std::string>{"lora_te_", "lora_te1_", "lycoris_te_"}
              : std::vector<std::string>{"lora_te2_"};
    for (const std::string& prefix : kohya) add_stem(prefix + with_underscores(module), target);
    const std::string folder = std::string(component_name(component)) + ".";
    add_stem(folder + module, target);
    if (module.starts_with(kModel)) add_stem(folder + module.substr(kModel.size()), target);
  }
}

const AdapterTargets::Target* AdapterTargets::find(std::string_view stem, std::string_view leaf) const {
  const auto found = targets_.find(concat(stem, ".", leaf));
  return found == targets_.end() ? nullptr : &found->second;
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
  for (const TensorRef& ref : tensors.tensors()) by_name[ref.entry->name] = {ref, ref.entry->shape};
  std::shared_ptr<AdapterFile> file(
      new AdapterFile(path, WeightStore(Component::kUnet, what, tensors.files(), std::move(by_name))));

  const Grouped grouped = group_keys(tensors);
  require<FormatError>(!grouped.modules.empty(), what,
                       ": not a LoRA: no tensor has one of the names that LoRA files have");
  check_keys(grouped, targets, tensors, what, model_kind);
  for (const auto& [stem, parts] : grouped.modules) file->add(stem, parts, targets);
  file->check_finite();
  return file;
}

void AdapterFile::add(const std::string& stem, Parts parts, const AdapterTargets& targets) {
  const Roles roles(parts);
  const auto keep = [&](const AdapterTargets::Target& target, AdapterModule module) {
    ModuleCheck(tensors_, module, target.shape)();
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
  if (module.has("on_input")) module.on_input = flag(tensors_, module.parts.at("on_input"));
  if (module.rank > 0) {
    const std::string_view layer = std::string_view(target.name).substr(0, target.name.rfind('.'));
    module.scale = module.has("alpha")
                       ? scalar(tensors_, module.parts.at("alpha")) / static_cast<double>(module.rank)
                       : PeftConfig(metadata(), target.component, tensors_.title())
                             .scale(layer, module.rank)
                             .value_or(1.0);
  }
  keep(target, std::move(module));
}

void AdapterFile::check_finite() const {
  std::vector<float> values;
  for (const auto& [name, tensor] : tensors_.weights()) {
    if (parse_adapter_key(name).role == "on_input") continue;  // a flag
    values.resize(static_cast<size_t>(tensor.shape.numel()));
    tensors_.read(name, tensor.shape, DType::kF32, values.data());
    const auto bad = std::count_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
    require<FormatError>(bad == 0, tensors_.title(), ": ", printable(name), ": ", bad, " of ", values.size(),
                         " values are not finite");
  }
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
