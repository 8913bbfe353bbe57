// What there is to draw with: models and LoRAs by name. Clients never say a path. Thread-safe.
#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace rocm_sd::server {

struct ModelEntry {
  std::string name;  // file name without its ending, or the folder's name
  std::filesystem::path path;
  std::string kind;                           // "sd1", "sdxl", ...
  int default_width = 0, default_height = 0;  // 0 until it has been loaded once
};

// A LoRA, an embedding, a ControlNet or an IP-Adapter.
struct NamedFile {
  std::string name;
  std::filesystem::path path;
};

struct CatalogFolders {
  std::string models, loras, embeddings, controls, upscalers = {};  // empty: none
};

class Catalog {
 public:
  // Opens what is named and lists what the folder holds, headers only. Throws FileError, FormatError or
  // UsageError for a named model that would not load; of the folder such files are left out with a log line.
  Catalog(const std::vector<std::string>& models, CatalogFolders folders);

  std::vector<ModelEntry> models() const;
  ModelEntry current() const;  // of requests that name none
  // By name, file name, or the web UI's title ("name.safetensors [1234567890]"); "" is the current one.
  // Throws RequestError (404) with the names that there are.
  ModelEntry find(const std::string& name) const;
  void set_current(const std::string& name);  // throws as find()
  void set_default_size(const std::string& name, int width, int height);

  // These look anew: a file may have come.
  std::vector<NamedFile> loras() const;
  std::vector<NamedFile> embeddings() const;
  std::vector<NamedFile> controls() const;
  // Those of controls() that are IP-Adapters, which lie in the same folder.
  std::vector<NamedFile> ip_adapters() const;
  // Of controls(). Throws RequestError (400) for a name that is not among them.
  NamedFile find_control(const std::string& name, const std::string& field) const;
  // Networks that enlarge pictures.
  std::vector<NamedFile> upscalers() const;
  // Throws RequestError (400) for a name that is not among them.
  void require_loras(const std::vector<std::string>& names, const std::string& field) const;
  const std::string& lora_folder() const { return folders_.loras; }

 private:
  void add(const std::filesystem::path& path);

  mutable std::mutex mutex_;
  std::vector<ModelEntry> models_;
  size_t current_ = 0;
  CatalogFolders folders_;
};

// "name.safetensors" as the web UI lists models.
std::string model_title(const ModelEntry& model);

}  // namespace rocm_sd::server
