#include "pipeline/embeddings.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/file.hpp"
#include "weights/weights_files.hpp"

namespace rocm_sd {
namespace {}  // namespace

EmbeddingUse parse_embedding_use(std::string_view text) {
  const size_t equals = text.find('=');
  EmbeddingUse use{std::string(text), {}};
  if (equals != text.npos && !path_exists(use.file)) {
    use.name = text.substr(0, equals);
    use.file = text.substr(equals + 1);
  }
  require<UsageError>(!use.file.empty() && equals != 0, "expected FILE or NAME=FILE, got \"", printable(text),
                      "\"");
  return use;
}

void EmbeddingLibrary::look_through_folder() {
  by_name_.clear();
  if (!folder_.empty()) by_name_ = weights_files_below(folder_, "embedding-dir");
}

std::vector<NamedEmbedding> EmbeddingLibrary::named(const std::vector<EmbeddingUse>& uses) {
  std::vector<NamedEmbedding> out;
  const auto add = [&](const std::string& name, const std::filesystem::path& path) {
    for (NamedEmbedding& known : out) {
      if (known.name != name) continue;
      if (known.second.empty() && EmbeddingFile::are_halves(*open(known.path), *open(path))) {
        known.second = path;
        return;
      }
      require<UsageError>(known.path == path || known.second == path,
                          "embedding: ", printable(known.path.string()), " and ", printable(path.string()),
                          " have the name \"", printable(name), "\": give one another (NAME=FILE)");
      return;
    }
    out.push_back({name, path, {}});
  };
  for (const EmbeddingUse& use : uses) {
    require<FileError>(path_exists(use.file) && !is_folder_path(use.file), "embedding: ", printable(use.file),
                       ": no such file");
    const std::filesystem::path path = use.file;
    const std::string token = open(path)->token();
    if (!use.name.empty()) {
      add(use.name, path);
      continue;
    }
    add(path.stem().string(), path);
    if (!token.empty()) add(token, path);
  }
  look_through_folder();  // a file may be new
  for (const auto& [name, path] : by_name_)
    if (std::none_of(out.begin(), out.end(), [&](const NamedEmbedding& known) { return known.name == name; }))
      out.push_back({name, path, {}});
  return out;
}

std::shared_ptr<const EmbeddingFile> EmbeddingLibrary::open(const std::filesystem::path& path) {
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(path, error);
  Opened& known = opened_[path];
  if (!known.file || known.changed != changed) known = {changed, EmbeddingFile::open(path)};
  return known.file;
}

std::shared_ptr<const EmbeddingFile> EmbeddingLibrary::open(const NamedEmbedding& embedding) {
  const auto first = open(embedding.path);
  return embedding.second.empty() ? first : EmbeddingFile::joined(*first, *open(embedding.second));
}

RequestEmbeddings::RequestEmbeddings(EmbeddingLibrary& library, const std::vector<EmbeddingUse>& uses)
    : library_(library), named_(library.named(uses)), used_index_(named_.size(), -1) {}

EmbeddingNames RequestEmbeddings::names(const ClipTokenizer& tokenizer) const {
  std::vector<std::string> names;
  for (const NamedEmbedding& known : named_) names.push_back(known.name);
  return {tokenizer, std::move(names),
          [this](size_t i) { return static_cast<int>(library_.open(named_[i])->vectors()); }};
}

void RequestEmbeddings::note_used(PromptChunk& chunk) {
  for (InsertedVector& inserted : chunk.inserted) {
    const auto name = static_cast<size_t>(inserted.name);
    if (used_index_[name] < 0) {
      used_index_[name] = static_cast<int>(used_.size());
      used_.push_back({named_[name].name, library_.open(named_[name]), vectors()});
    }
    inserted.name = used_index_[name];
  }
}

int64_t RequestEmbeddings::vectors() const {
  return used_.empty() ? 0 : used_.back().first + used_.back().file->vectors();
}

std::string embedding_hashes(const std::vector<UsedEmbedding>& used) {
  std::string out;
  for (const UsedEmbedding& embedding : used) {
    std::string name = embedding.name;
    std::erase_if(name, [](char c) { return c == ':' || c == ','; });
    out += concat(out.empty() ? "" : ", ", name, ": ", embedding.file->hash().substr(0, 12));
  }
  return out;
}

}  // namespace rocm_sd
