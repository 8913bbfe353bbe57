#include "weights/store.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

namespace rocm_sd {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;  // work of one thread at a time; a few MiB

Shape without_trailing_ones(const Shape& shape) {
  int rank = shape.rank();
  while (rank > 2 && shape[rank - 1] == 1) --rank;
  return Shape(shape.dims().first(static_cast<size_t>(rank)));
}

// dst[count] of type want from count stored elements; scratch is reused between calls of one thread.
void convert_scaled(const char* stored, DType from, float scale, void* dst, DType want, int64_t count,
                    std::vector<float>& scratch) {
  if (scale == 1.0f) return convert_elements(stored, from, dst, want, count);
  scratch.resize(static_cast<size_t>(count));
  convert_elements(stored, from, scratch.data(), DType::kF32, count);
  for (float& value : scratch) value *= scale;
  convert_elements(scratch.data(), DType::kF32, dst, want, count);
}

// Elements [begin, begin + count) of the row-major file tensor, one chunk.
void read_straight(const StoredTensor& weight, int64_t begin, int64_t count, DType want, void* dst) {
  const TensorEntry& entry = *weight.ref.entry;
  const size_t size = dtype_size(entry.dtype);
  const auto offset = static_cast<uint64_t>(begin) * size, bytes = static_cast<uint64_t>(count) * size;
  if (entry.dtype == want && weight.scale == 1.0f) return weight.ref.file->read(entry, offset, bytes, dst);
  std::vector<char> stored(bytes);
  std::vector<float> scratch;
  weight.ref.file->read(entry, offset, bytes, stored.data());
  convert_scaled(stored.data(), entry.dtype, weight.scale, dst, want, count, scratch);
}

// The canonical tensor [rows,cols] lies as [cols,rows] in the file: read whole, used for text projections
// only.
void read_transposed(const StoredTensor& weight, int64_t begin, int64_t count, DType want, void* dst) {
  const TensorEntry& entry = *weight.ref.entry;
  const int64_t rows = weight.shape[0], cols = weight.shape[1];
  const size_t size = dtype_size(want);
  std::vector<char> all(static_cast<size_t>(entry.numel()) * size);
  read_straight(weight, 0, entry.numel(), want, all.data());
  char* out = static_cast<char*>(dst);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = (begin + i) / cols, col = (begin + i) % cols;
    std::memcpy(out + i * size, all.data() + (col * rows + row) * size, size);
  }
}

}  // namespace

bool shapes_compatible(const Shape& a, const Shape& b) {
  if (a == b) return true;
  return a.rank() >= 2 && b.rank() >= 2 && without_trailing_ones(a) == without_trailing_ones(b);
}

WeightStore::WeightStore(Component component, std::string title,
                         std::vector<std::shared_ptr<const SafetensorsFile>> files,
                         std::map<std::string, StoredTensor, std::less<>> weights)
    : component_(component),
      title_(std::move(title)),
      files_(std::move(files)),
      weights_(std::move(weights)),
      used_(std::make_unique<std::atomic<bool>[]>(weights_.size())) {
  size_t position = 0;
  for (auto& [name, weight] : weights_) positions_.emplace(&weight, position++);
}

uint64_t WeightStore::parameters() const {
  uint64_t total = 0;
  for (const auto& [name, weight] : weights_) total += static_cast<uint64_t>(weight.shape.numel());
  return total;
}

uint64_t WeightStore::stored_bytes() const {
  uint64_t total = 0;
  for (const auto& [name, weight] : weights_) {
    const GgmlTypeInfo* blocks = weight.ref.entry->blocks;
    const auto count = static_cast<uint64_t>(weight.shape.numel());
    total += blocks ? count / static_cast<uint64_t>(blocks->block) * static_cast<uint64_t>(blocks->bytes)
                    : count * dtype_size(weight.dtype());
  }
  return total;
}

const StoredTensor* WeightStore::find(std::string_view name) const {
  const auto it = weights_.find(name);
  return it == weights_.end() ? nullptr : &it->second;
}

const StoredTensor& WeightStore::at(std::string_view name) const {
  const StoredTensor* weight = find(name);
  require<FormatError>(weight != nullptr, title_, ": tensor \"", printable(name), "\" is missing");
  return *weight;
}

void WeightStore::read(std::string_view name, const Shape& expected, DType want, void* dst) const {
  read_part(name, expected, 0, expected.numel(), want, dst);
}

const StoredTensor& WeightStore::check(std::string_view name, const Shape& expected) const {
  const StoredTensor& weight = at(name);
  const auto named = [&] {
    return weight.file_name() == name ? "" : concat(" (as \"", printable(weight.file_name()), "\")");
  };
  require(shapes_compatible(weight.shape, expected), name, ": expected ", expected, ", ", title_, " has ",
          weight.shape, named(), ", file ", printable_path(weight.ref.file->path()));
  require<FormatError>(is_float(weight.dtype()), name, ": expected floating-point numbers, ", title_, " has ",
                       weight.dtype(), named(), ", file ", printable_path(weight.ref.file->path()));
  return weight;
}

void WeightStore::read_part(std::string_view name, const Shape& expected, int64_t begin, int64_t count,
                            DType want, void* dst) const {
  const StoredTensor& weight = check(name, expected);
  used_[positions_.at(&weight)].store(true, std::memory_order_relaxed);
  read_range(weight, begin, count, want, dst);
}

void WeightStore::read_range(const StoredTensor& weight, int64_t begin, int64_t count, DType want,
                             void* dst) const {
  require<InternalError>(begin >= 0 && count >= 0 && begin <= weight.shape.numel() - count,
                         "read of elements [", begin, ", +", count, ") of ", printable(weight.file_name()),
                         " ", weight.shape);
  if (count == 0) return;
  if (weight.transposed) return read_transposed(weight, begin, count, want, dst);
  const int64_t row = weight.shape.rank() == 0 ? 1 : weight.shape.numel() / weight.shape[0];
  const int64_t first = weight.row_begin * row + begin;
  const int64_t chunks = (count + kChunkElements - 1) / kChunkElements;
  const size_t size = dtype_size(want);
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic) if (chunks > 1)
  for (int64_t c = 0; c < chunks; ++c) {
    try {
      const int64_t at = c * kChunkElements;
      read_straight(weight, first + at, std::min(kChunkElements, count - at), want,
                    static_cast<char*>(dst) + static_cast<size_t>(at) * size);
    } catch (...) {
#pragma omp critical(rocm_sd_weights_read)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

std::vector<std::string> WeightStore::unused() const {
  std::vector<std::string> names;
  size_t position = 0;
  for (const auto& [name, weight] : weights_)
    if (!used_[position++].load(std::memory_order_relaxed)) names.push_back(name);
  return names;
}

void WeightStore::mark_used(std::string_view name) const {
  if (const StoredTensor* weight = find(name))
    used_[positions_.at(weight)].store(true, std::memory_order_relaxed);
}

}  // namespace rocm_sd
