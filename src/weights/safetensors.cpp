#include "weights/safetensors.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.hpp"
#include "weights/gguf.hpp"
#include "weights/mapped_copy.hpp"
#include "weights/torch_file.hpp"

namespace rocm_sd {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian and is not swapped");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;

// What a file that is no safetensors file is instead, by its first bytes; empty where nothing is recognised.
std::string_view guess_content(std::string_view head) {
  struct Row {
    std::string_view magic, says;
  };
  constexpr Row kRows[] = {
      {"version https://git-lfs", "a git-LFS pointer, not the weights: fetch them with `git lfs pull`"},
      {"PK\x05\x06", "an empty zip archive"},
      {"\x80\x02", "a Python pickle that torch.save did not write"},
      {"\x80\x03", "a Python pickle that torch.save did not write"},
      {"\x80\x04", "a Python pickle that torch.save did not write"},
      {"\x1f\x8b", "a gzip archive"},
      {"\x89PNG", "a PNG picture"},
  };
  for (const Row& row : kRows)
    if (head.starts_with(row.magic)) return row.says;
  std::string lower(head.substr(0, 64));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  if (lower.find("<!doctype html") != lower.npos || lower.find("<html") != lower.npos)
    return "an HTML page, probably an error page saved in place of the file";
  if (head.starts_with("{")) return "JSON text (an index file must be named *.json)";
  return {};
}

std::string head_of(const InputFile& file) {
  std::string head(static_cast<size_t>(std::min<uint64_t>(file.size(), 64)), '\0');
  file.read_at(0, head.data(), head.size());
  return head;
}

// The header's length, after every check that does not need its text.
uint64_t header_length(const InputFile& file, const std::string& what) {
  require<FormatError>(file.size() > 0, what, ": the file is empty");
  const std::string head = head_of(file);
  const std::string_view guess = guess_content(head);
  require<FormatError>(guess.empty(), what, ": not a safetensors file but ", guess);
  require<FormatError>(file.size() >= 8, what, ": ", file.size(), " bytes, too short for a safetensors file");
  uint64_t length = 0;
  std::memcpy(&length, head.data(), 8);
  require<FormatError>(length <= kMaxHeaderBytes, what, ": header length ", length, " is above the limit of ",
                       kMaxHeaderBytes, " bytes: not a safetensors file, or damaged");
  require<FormatError>(length >= 2, what, ": header length ", length, " is too small");
  require<FormatError>(8 + length <= file.size(), what,
                       ": truncated inside the header: ", 8 + length - file.size(), " of its ", length,
                       " bytes are missing");
  return length;
}

}  // namespace

std::shared_ptr<const SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path,
                                                             FileAccess access) {
  std::shared_ptr<SafetensorsFile> self(new SafetensorsFile(path));
  const InputFile& file = self->file_.emplace(path);
  const std::string what = printable_path(path);
  self->bytes_ = file.size();
  if (is_torch_file(head_of(file))) {
    TorchFile torch = read_torch_file(file, what);
    self->header_ = std::move(torch.header);
    self->gathered_ = std::move(torch.gathered);
  } else if (is_gguf(head_of(file))) {
    self->header_ = read_gguf(file, what);
  } else {
    self->read_safetensors_layout();
  }
  self->make_index();
  if (access == FileAccess::kMap) {
    void* mapping = mmap(nullptr, self->bytes_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    require<FileError>(mapping != MAP_FAILED, what,
                       ": cannot map the file into memory: ", std::strerror(errno));
    self->mapping_ = static_cast<const unsigned char*>(mapping);
  }
  return self;
}

void SafetensorsFile::read_safetensors_layout() {
  const std::string what = printable_path(path_);
  const uint64_t length = header_length(*file_, what);
  std::string text(static_cast<size_t>(length), '\0');
  file_->read_at(8, text.data(), length);
  data_begin_ = 8 + length;
  header_ = parse_safetensors_header(text, bytes_ - data_begin_, what);
}

std::shared_ptr<const SafetensorsFile> SafetensorsFile::of_memory(const std::string& title,
                                                                  const std::vector<MemoryTensor>& tensors) {
  std::shared_ptr<SafetensorsFile> self(new SafetensorsFile(title));
  for (const MemoryTensor& tensor : tensors) {
    const auto bytes = static_cast<uint64_t>(tensor.shape.numel()) * dtype_size(tensor.dtype);
    self->header_.entries.push_back({tensor.name, tensor.dtype, tensor.shape, self->bytes_, bytes});
    self->memory_.push_back(tensor.data);
    self->bytes_ += bytes;
  }
  self->make_index();
  require<FormatError>(self->index_.size() == tensors.size(), printable(title),
                       ": a tensor's name is given twice");
  return self;
}

void SafetensorsFile::make_index() {
  index_.reserve(header_.entries.size());
  for (const TensorEntry& entry : header_.entries) index_.emplace(entry.name, &entry);
}

SafetensorsFile::~SafetensorsFile() {
  if (mapping_ != nullptr) munmap(const_cast<unsigned char*>(mapping_), bytes_);
}

const void* SafetensorsFile::in_memory(const TensorEntry& entry) const {
  return memory_.empty() ? nullptr : memory_.at(position(entry));
}

size_t SafetensorsFile::position(const TensorEntry& entry) const {
  return static_cast<size_t>(&entry - header_.entries.data());
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : it->second;
}

void SafetensorsFile::read(const TensorEntry& entry, uint64_t offset, uint64_t bytes, void* dst) const {
  require<InternalError>(offset <= entry.bytes && bytes <= entry.bytes - offset, printable(entry.name),
                         ": read of bytes [", offset, ", +", bytes, ") outside its ", entry.bytes);
  if (bytes == 0) return;
  const void* data = in_memory(entry);
  if (!gathered_.empty() && !gathered_.at(position(entry)).empty()) data = gathered_[position(entry)].data();
  require<InternalError>(data != nullptr || file_, printable(entry.name),
                         ": read of a tensor without values");
  if (data != nullptr) {
    std::memcpy(dst, static_cast<const char*>(data) + offset, bytes);
    return;
  }
  if (entry.blocks != nullptr) return read_blocks(entry, offset, bytes, dst);
  read_stored(entry, offset, bytes, dst);
}

// The floats [offset, offset + bytes) of what its blocks hold, a few blocks at a time.
void SafetensorsFile::read_blocks(const TensorEntry& entry, uint64_t offset, uint64_t bytes,
                                  void* dst) const {
  constexpr uint64_t kAtOnce = 64;
  const auto block = static_cast<uint64_t>(entry.blocks->block),
             packed = static_cast<uint64_t>(entry.blocks->bytes);
  const uint64_t unpacked = block * sizeof(float), end = offset + bytes;
  std::vector<char> stored(kAtOnce * packed);
  std::vector<float> values(kAtOnce * block);
  for (uint64_t first = offset / unpacked; first * unpacked < end; first += kAtOnce) {
    const uint64_t count = std::min(kAtOnce, (end + unpacked - 1) / unpacked - first);
    read_stored(entry, first * packed, count * packed, stored.data());
    dequantize_blocks(entry.blocks->type, stored.data(), static_cast<int64_t>(count), values.data());
    const uint64_t begin = std::max(offset, first * unpacked),
                   stop = std::min(end, (first + count) * unpacked);
    std::memcpy(static_cast<char*>(dst) + (begin - offset),
                reinterpret_cast<const char*>(values.data()) + (begin - first * unpacked), stop - begin);
  }
}

void SafetensorsFile::read_stored(const TensorEntry& entry, uint64_t offset, uint64_t bytes,
                                  void* dst) const {
  const uint64_t position = data_begin_ + entry.begin + offset;
  if (mapping_ == nullptr) return file_->read_at(position, dst, bytes);
  require<FormatError>(mapped_copy(dst, mapping_ + position, bytes), printable_path(path()),
                       ": the file became shorter or unreadable while it was read (tensor \"",
                       printable(entry.name), "\")");
}

}  // namespace rocm_sd
