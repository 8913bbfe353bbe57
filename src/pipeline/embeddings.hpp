// Textual inversion of a pipeline: files found by name, opened when a prompt names them.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rocm_sd/pipeline.hpp"
#include "text/chunks.hpp"
#include "weights/embedding_file.hpp"

namespace rocm_sd {

// "FILE" or "NAME=FILE" as --embedding takes it; a file whose own name has a "=" is one. Throws UsageError.
EmbeddingUse parse_embedding_use(std::string_view text);

// An embedding that a prompt may name, or names.
struct NamedEmbedding {
  std::string name;
  std::filesystem::path path;
  std::filesystem::path second;  // the other file of an SDXL embedding in two, or empty
};

// One that a prompt has named. Its vectors are rows from `first` on of a table of all that were named.
struct UsedEmbedding {
  std::string name;
  std::shared_ptr<const EmbeddingFile> file;
  int64_t first = 0;
};

class EmbeddingLibrary {
 public:
  // folder: LoadOptions::embedding_dir, or empty.
  explicit EmbeddingLibrary(std::string folder) : folder_(std::move(folder)) {}

  // The request's own, by file name and token, then the folder's, by file name. Of equal names the first
  // counts. Two files of the request with one name and vectors of two widths are one embedding of SDXL, in
  // two files. Opens the request's files. Throws FileError for a missing file or folder, what
  // EmbeddingFile::open throws, and UsageError where two files of the request have one name.
  std::vector<NamedEmbedding> named(const std::vector<EmbeddingUse>& uses);

  // Opened once for as long as the file stays as it is.
  std::shared_ptr<const EmbeddingFile> open(const std::filesystem::path& path);
  std::shared_ptr<const EmbeddingFile> open(const NamedEmbedding& embedding);

 private:
  void look_through_folder();

  std::string folder_;
  std::map<std::string, std::filesystem::path> by_name_;  // of the folder's files, by stem
  struct Opened {
    std::filesystem::file_time_type changed;
    std::shared_ptr<const EmbeddingFile> file;
  };
  std::map<std::filesystem::path, Opened> opened_;
};

// The names of one request, for every text encoder.
class RequestEmbeddings {
 public:
  // library must outlive the result. Throws what EmbeddingLibrary::named throws.
  RequestEmbeddings(EmbeddingLibrary& library, const std::vector<EmbeddingUse>& uses);

  // Names as this tokenizer reads them; refers to this object and to the tokenizer.
  EmbeddingNames names(const ClipTokenizer& tokenizer) const;
  // Makes the chunk's InsertedVector::name an index in used(), which grows by what is new.
  void note_used(PromptChunk& chunk);
  const std::vector<UsedEmbedding>& used() const { return used_; }
  int64_t vectors() const;  // rows of the table of all used

 private:
  EmbeddingLibrary& library_;
  std::vector<NamedEmbedding> named_;
  std::vector<int> used_index_;  // per name, or -1
  std::vector<UsedEmbedding> used_;
};

// "NAME: HASH, NAME: HASH" as A1111 writes it under "TI hashes"; empty where there are none.
std::string embedding_hashes(const std::vector<UsedEmbedding>& used);

}  // namespace rocm_sd
