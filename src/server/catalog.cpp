#include "server/catalog.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "models/completeness.hpp"
#include "server/http.hpp"
#include "weights/inspect.hpp"
#include "weights/layout.hpp"
#include "weights/weights_files.hpp"

namespace rocm_sd::server {
namespace {

namespace fs = std::filesystem;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return text;
}

// What a client may call it: the name, the file's name, the title with a hash behind it.
std::string plain_name(std::string name) {
  if (const size_t hash = name.rfind(" ["); hash != name.npos && name.ends_with(']')) name.resize(hash);
  name.resize(name.size() - weights_ending(name).size());
  return lower(std::move(name));
}

// The folder's whole path, or "" for none.
std::string whole_folder(const std::string& folder, const char* option) {
  if (folder.empty()) return "";
  require<FileError>(is_folder_path(folder), option, ": ", printable(folder), ": no such folder");
  return fs::canonical(folder).string();
}

// Its files with tensors by their names, folders below it too.
std::vector<NamedFile> files_below(const std::string& folder, std::string_view option) {
  std::vector<NamedFile> out;
  if (folder.empty()) return out;
  for (const auto& [name, path] : weights_files_below(folder, option)) out.push_back({name, path});
  return out;
}

}  // namespace

std::string model_title(const ModelEntry& model) { return model.path.filename().string(); }

void Catalog::add(const fs::path& path) {
  const fs::path whole = fs::canonical(path);
  const auto report = inspect(whole, 1, [](const Checkpoint& checkpoint) { require_complete(checkpoint); });
  if (report.contains("problem"))
    throw FormatError(concat(printable_path(path), ": ", report["problem"].get<std::string>()));
  require<FormatError>(report.contains("prediction"), printable_path(path), ": expected a model, this is ",
                       report.value("type", "unknown"));
  ModelEntry entry;
  entry.path = whole;
  entry.name = fs::is_directory(whole) ? whole.filename().string() : whole.stem().string();
  entry.kind = report.value("type", "unknown");
  for (const ModelEntry& known : models_) {
    if (known.path == whole) return;
    require<UsageError>(plain_name(known.name) != plain_name(entry.name), "model: ", printable_path(path),
                        " and ", printable_path(known.path), " have the same name");
  }
  models_.push_back(std::move(entry));
}

Catalog::Catalog(const std::vector<std::string>& models, CatalogFolders folders)
    : folders_(std::move(folders)) {
  for (const std::string& model : models) {
    require<FileError>(path_exists(model), "model: ", printable(model), ": no such file or folder");
    add(model);
  }
  if (!folders_.models.empty()) {
    std::vector<fs::path> found;
    for (const fs::directory_entry& entry :
         fs::directory_iterator(whole_folder(folders_.models, "models-dir")))
      if (!weights_ending(entry.path().native()).empty() || path_exists(entry.path() / "model_index.json"))
        found.push_back(entry.path());
    std::ranges::sort(found);
    for (const fs::path& path : found) {
      try {
        add(path);
      } catch (const Error& e) {
        log().warn("models-dir: left out: {}", e.what());
      }
    }
  }
  require<UsageError>(!models_.empty(),
                      "model: expected --model PATH, or --models-dir FOLDER with models in it");
  folders_.loras = whole_folder(folders_.loras, "lora-dir");
  folders_.embeddings = whole_folder(folders_.embeddings, "embedding-dir");
  folders_.controls = whole_folder(folders_.controls, "control-dir");
  folders_.upscalers = whole_folder(folders_.upscalers, "upscaler-dir");
}

std::vector<ModelEntry> Catalog::models() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

ModelEntry Catalog::current() const {
  const std::lock_guard lock(mutex_);
  return models_[current_];
}

ModelEntry Catalog::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  if (name.empty()) return models_[current_];
  const std::string wanted = plain_name(name);
  std::string known;
  for (const ModelEntry& model : models_) {
    if (plain_name(model.name) == wanted) return model;
    known += (known.empty() ? "" : ", ") + printable(model.name);
  }
  throw RequestError(
      {404, "model_not_found", concat("model: no \"", printable(name), "\"; there are: ", known), "model"});
}

void Catalog::set_current(const std::string& name) {
  const ModelEntry wanted = find(name);
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < models_.size(); ++i)
    if (models_[i].path == wanted.path) current_ = i;
}

void Catalog::set_default_size(const std::string& name, int width, int height) {
  const std::lock_guard lock(mutex_);
  for (ModelEntry& model : models_)
    if (model.name == name) {
      model.default_width = width;
      model.default_height = height;
    }
}

std::vector<NamedFile> Catalog::loras() const { return files_below(folders_.loras, "lora-dir"); }
std::vector<NamedFile> Catalog::upscalers() const { return files_below(folders_.upscalers, "upscaler-dir"); }
std::vector<NamedFile> Catalog::embeddings() const {
  return files_below(folders_.embeddings, "embedding-dir");
}

std::vector<NamedFile> Catalog::controls() const {
  std::vector<NamedFile> out;
  if (folders_.controls.empty()) return out;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folders_.controls, error)) {
    if (!weights_ending(entry.path().native()).empty())
      out.push_back({entry.path().stem().string(), entry.path()});
    else if (path_exists(entry.path() / "config.json") && entry.path().filename() != "image_encoder")
      out.push_back({entry.path().filename().string(), entry.path()});
  }
  std::ranges::sort(out, {}, &NamedFile::name);
  return out;
}

std::vector<NamedFile> Catalog::ip_adapters() const {
  std::vector<NamedFile> out;
  for (NamedFile& one : controls()) {
    if (is_folder_path(one.path)) continue;
    try {
      if (describe_foreign(TensorSet::open(one.path)) == "an IP-Adapter") out.push_back(std::move(one));
    } catch (const Error&) {  // says so when it is drawn with
    }
  }
  return out;
}

NamedFile Catalog::find_control(const std::string& name, const std::string& field) const {
  std::string known;
  for (const NamedFile& control : controls()) {
    if (control.name == name) return control;
    known += (known.empty() ? "" : ", ") + printable(control.name);
  }
  throw RequestError({400, "control_not_found",
                      concat(printable(field), ": no ControlNet or IP-Adapter \"", printable(name),
                             "\"; there are: ", known.empty() ? std::string("none (--control-dir)") : known),
                      field});
}

void Catalog::require_loras(const std::vector<std::string>& names, const std::string& field) const {
  if (names.empty()) return;
  std::vector<std::string> known;
  for (const NamedFile& lora : loras()) known.push_back(lora.name);
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string hint = known.empty()
                                 ? std::string("this server has none (--lora-dir)")
                                 : concat("did you mean \"", printable(nearest_name(name, known)), "\"?");
    throw RequestError({400, "lora_not_found",
                        concat(printable(field), ": no LoRA \"", printable(name), "\"; ", hint), field});
  }
}

}  // namespace rocm_sd::server
