// safetensors files: a strict reader and a streaming writer.
// Format: 8 bytes little-endian header length N, N bytes of JSON, then the tensors' bytes without gaps
// (https://github.com/huggingface/safetensors, README "Format"); the rules here are stricter, see
// safetensors_header.cpp.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/dtype.hpp"
#include "base/file.hpp"
#include "base/shape.hpp"
#include "weights/ggml_blocks.hpp"

namespace rocm_sd {

using Metadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t begin = 0;                    // bytes from the start of the data section
  uint64_t bytes = 0;                    // numel * dtype_size
  const GgmlTypeInfo* blocks = nullptr;  // what the file has in place of dtype: blocks, read as f32

  int64_t numel() const { return shape.numel(); }
  std::string_view stored_name() const { return blocks ? blocks->name : dtype_name(dtype); }
  uint64_t stored_bytes() const {
    return blocks ? static_cast<uint64_t>(numel() / blocks->block * blocks->bytes) : bytes;
  }
};

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // in the order of their data
  Metadata metadata;                 // "__metadata__"
};

// Checks the JSON text of a header against a data section of data_bytes. `what` names the file in errors
// (FormatError).
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes, std::string_view what);

enum class FileAccess {
  kRead,
  kMap
};  // pread, or mmap with a guard against the file being truncated meanwhile

// A tensor that somebody else holds in memory, row-major. data may be null (or a GPU's address) where only
// names and shapes count: such a tensor cannot be read.
struct MemoryTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  const void* data = nullptr;
};

class SafetensorsFile {
 public:
  // Also opens files of torch.save (read_torch_file) and GGUF (read_gguf), whatever their name. Throws
  // FileError where there is no readable regular file, FormatError where it breaks a rule; the message says
  // what the file seems to be instead (a git-LFS pointer, HTML, truncated by so many bytes, ...).
  static std::shared_ptr<const SafetensorsFile> open(const std::filesystem::path& path,
                                                     FileAccess access = FileAccess::kRead);
  // Tensors of a live model in place of a file. title stands where messages have a path. The memory must
  // outlive the result. Throws FormatError for a name given twice.
  static std::shared_ptr<const SafetensorsFile> of_memory(const std::string& title,
                                                          const std::vector<MemoryTensor>& tensors);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t file_bytes() const { return bytes_; }
  const std::vector<TensorEntry>& entries() const { return header_.entries; }
  const Metadata& metadata() const { return header_.metadata; }
  const TensorEntry* find(std::string_view name) const;  // null where absent

  // Where the tensor lies, for files of_memory; else null.
  const void* in_memory(const TensorEntry& entry) const;

  // Copies `bytes` bytes of the tensor from byte `offset` on. Thread-safe. Throws FormatError where the file
  // shrank.
  void read(const TensorEntry& entry, uint64_t offset, uint64_t bytes, void* dst) const;

 private:
  explicit SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {}
  void read_safetensors_layout();
  void read_stored(const TensorEntry& entry, uint64_t offset, uint64_t bytes, void* dst) const;
  void read_blocks(const TensorEntry& entry, uint64_t offset, uint64_t bytes, void* dst) const;
  void make_index();
  size_t position(const TensorEntry& entry) const;  // among the entries

  std::filesystem::path path_;
  uint64_t bytes_ = 0;
  std::optional<InputFile> file_;            // nothing: of_memory
  std::vector<const void*> memory_;          // by entry: of_memory
  std::vector<std::vector<char>> gathered_;  // by entry: TorchFile's
  SafetensorsHeader header_;
  uint64_t data_begin_ = 0;
  const unsigned char* mapping_ = nullptr;
  std::unordered_map<std::string_view, const TensorEntry*> index_;
};

// One tensor to write; fill(offset, bytes, dst) is asked for its bytes piece by piece, in order.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::function<void(uint64_t offset, uint64_t bytes, void* dst)> fill;
};

// Writes the file through a temporary one in the same folder; at most a few MiB are in memory at a time.
// Tensors are laid out by descending element size, then name, so that each is aligned. Throws FileError
// (disk, permissions) and FormatError (duplicate or illegal names).
void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       const Metadata& metadata);

}  // namespace rocm_sd
