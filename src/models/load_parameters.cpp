// Reading a model's parameters: which type each is stored as, and how it comes to the device.
#include <algorithm>

#include "kernels/eight_bit.hpp"
#include "models/bytes_to_load.hpp"
#include "models/parallel_upload.hpp"
#include "models/parameters.hpp"

namespace rocm_sd {
namespace {

// How many missing keys a message names; the rest are counted.
constexpr size_t kNamedMissing = 20;

// What is converted and copied to a GPU at a time.
constexpr int64_t kStagingBytes = int64_t{32} << 20;

class MissingKeys final : public Visitor {
 public:
  explicit MissingKeys(const ParameterSource& source) : source_(source) {}

  void check() const {
    if (missing_.empty()) return;
    std::string names;
    for (size_t i = 0; i < std::min(missing_.size(), kNamedMissing); ++i)
      names += concat(i ? ", " : "", missing_[i].name, " ", missing_[i].shape);
    if (missing_.size() > kNamedMissing) names += concat(" and ", missing_.size() - kNamedMissing, " more");
    throw FormatError(concat(source_.title(), ": ", missing_.size(), " of ", total_,
                             " expected tensors are missing: ", names));
  }

 protected:
  void slot(const ParameterSlot& slot) override {
    total_ += slot.parts.size();
    for (const ParameterSlot::Part& part : slot.parts)
      if (!source_.has(part.name)) missing_.push_back(part);
  }

 private:
  const ParameterSource& source_;
  std::vector<ParameterSlot::Part> missing_;
  size_t total_ = 0;
};

PrecisionRules rules_of(const VisitModel& visit, std::span<const PrecisionRow> precisions) {
  LayerPaths paths;
  for (const LayerListing& layer : list_precisions(visit, {})) paths.add(layer.layer);
  return {precisions, std::move(paths)};
}

// Of what the part has: some of its tensor where it is cut.
void read_elements(const ParameterSource& source, const ParameterSlot::Part& part, int64_t begin,
                   int64_t count, DType dtype, void* to) {
  if (part.cut)
    read_cut(source, part.name, *part.cut, begin, count, dtype, to);
  else
    source.read_part(part.name, part.shape, begin, count, dtype, to);
}

// How a slot is stored: in parts that are summed, of this type, or in 8 bits for products in it.
struct StoredForm {
  DType dtype = DType::kF32;
  int64_t parts = 1;
  bool eight_bit = false;
};

class StoredForms {
 public:
  StoredForms(DType compute, const WeightFormat& weights, PrecisionRules precisions)
      : compute_(compute), weights_(weights), precisions_(std::move(precisions)) {}

  StoredForm of(const ParameterSlot& slot, bool readable) const {
    if (!slot.matrix) return {};
    if (slot.layer.empty()) return {matrix_dtype(Precision::kCompute)};  // a table
    const auto [precision, eight_bit] = precisions_.of(slot.layer);
    const DType dtype = matrix_dtype(precision);
    if (weights_ && eight_bit) return {dtype, 1, true};
    const int64_t parts = parts_in(precision);
    if (compute_ == DType::kBF16 && parts > 1 && readable) return {DType::kBF16, parts};
    return {dtype};
  }

 private:
  static int64_t parts_in(Precision precision) {
    return precision == Precision::kSplit ? 3 : precision == Precision::kSplitInput ? 2 : 1;
  }
  DType matrix_dtype(Precision precision) const {
    if (weights_.short_for_f32) return precision == Precision::kFloat ? DType::kF32 : DType::kF16;
    const bool bf16 = compute_ == DType::kBF16;
    if (bf16 && precision == Precision::kHalf) return DType::kF16;
    if (bf16 && precision == Precision::kFloat) return DType::kF32;
    return compute_;
  }

  DType compute_;
  const WeightFormat& weights_;
  PrecisionRules precisions_;
};

// What load_parameters() will ask the device for.
class ByteCount final : public Visitor {
 public:
  ByteCount(const WeightFormat& weights, StoredForms forms) : weights_(weights), forms_(std::move(forms)) {}
  uint64_t bytes = 0;

 protected:
  void slot(const ParameterSlot& slot) override {
    if (lies_in_mapped_memory(slot)) return;
    const StoredForm form = forms_.of(slot, true);
    const auto count = static_cast<uint64_t>(slot.shape.numel());
    if (form.eight_bit)
      bytes += count * dtype_size(weights_.eight_bit) + static_cast<uint64_t>(slot.shape[0]) * sizeof(float);
    else
      bytes += count * static_cast<uint64_t>(form.parts) * dtype_size(form.dtype);
  }

 private:
  const WeightFormat& weights_;
  StoredForms forms_;
};

class Loader final : public Visitor {
 public:
  Loader(Device& device, const ParameterSource& source, DType compute, const WeightFormat& weights,
         const SlotFilter& only, PrecisionRules precisions)
      : device_(device),
        source_(source),
        compute_(compute),
        weights_(weights),
        only_(only),
        forms_(compute, weights, std::move(precisions)) {
    if (SideCopies* gpu = source.concurrent() ? side_copies(device) : nullptr) upload_.emplace(*gpu);
  }

  // After the last slot. Throws what a thread that read had to.
  void finish() {
    if (upload_) upload_->finish();
  }

 protected:
  void slot(const ParameterSlot& slot) override {
    if (only_ && !only_(slot)) return;
    const StoredForm form = forms_.of(slot, source_.readable());
    if (form.eight_bit) return quantised(slot, form.dtype);
    if (form.parts > 1) return split(slot, form.parts);
    plain(slot, form.dtype);
  }

 private:
  void plain(const ParameterSlot& slot, DType dtype) {
    if (Tensor ready = source_.ready(slot, dtype, device_)) return store(slot, std::move(ready));
    const bool is_short = weights_.short_for_f32 && dtype == DType::kF16;
    if (is_short)
      if (Tensor ready = source_.ready(slot, DType::kBF16, device_)) return store(slot, std::move(ready));
    const Tensor tensor = load(slot, dtype);
    const bool beyond =
        is_short && has_infinity(tensor);  // in bf16 it is what the file says, or infinite, too
    store(slot, beyond ? load(slot, DType::kBF16) : tensor);
  }
  Tensor load(const ParameterSlot& slot, DType dtype) {
    Tensor tensor = make_parameter(device_, slot, dtype);
    char* to = static_cast<char*>(tensor.data());
    for (const ParameterSlot::Part& part : slot.parts) {
      if (device_.kind() == DeviceKind::kHost || tensor.storage()->mapped())
        read_in_place(part, dtype, to);
      else
        stream(part, dtype, to);
      to += static_cast<size_t>(part.shape.numel()) * dtype_size(dtype);
    }
    return tensor;
  }
  // Of f16 in memory that the host reads.
  bool has_infinity(const Tensor& tensor) const {
    const DeviceAccess access(device_);
    constexpr uint16_t kMagnitude = 0x7fff, kInfinity = 0x7c00;
    const auto* values = static_cast<const uint16_t*>(tensor.data());
    return std::any_of(values, values + tensor.numel(),
                       [](uint16_t bits) { return (bits & kMagnitude) == kInfinity; });
  }
  // Narrow weights of wide products.
  void store(const ParameterSlot& slot, Tensor tensor) {
    const bool narrow = slot.matrix && weights_.short_for_f32 && tensor.dtype() != compute_;
    slot.store(narrow ? StoredWeight(std::move(tensor), Tensor(), compute_)
                      : StoredWeight(std::move(tensor)));
  }
  void read_in_place(const ParameterSlot::Part& part, DType dtype, char* to) {
    const DeviceAccess access(device_);
    read(part, 0, part.shape.numel(), dtype, to);
  }
  void read(const ParameterSlot::Part& part, int64_t begin, int64_t count, DType dtype, void* to) {
    if (count == part.shape.numel() && !part.cut)
      source_.read(part.name, part.shape, dtype, to);
    else
      read_elements(source_, part, begin, count, dtype, to);
  }

  // The device's memory is out of the host's reach: pieces go through a buffer that every tensor shares.
  void stream(const ParameterSlot::Part& part, DType dtype, char* to) {
    const int64_t count = part.shape.numel();
    const auto size = static_cast<int64_t>(dtype_size(dtype));
    if (upload_) return upload(part, dtype, to);
    if (staging_.empty()) staging_.resize(kStagingBytes);
    const int64_t most = kStagingBytes / size;
    for (int64_t begin = 0; begin < count; begin += most) {
      const int64_t piece = std::min(most, count - begin);
      read(part, begin, piece, dtype, staging_.data());
      device_.copy_to_device(to + begin * size, staging_.data(), static_cast<size_t>(piece * size));
    }
  }

  void upload(const ParameterSlot::Part& part, DType dtype, char* to) {
    const int64_t count = part.shape.numel();
    const auto size = static_cast<int64_t>(dtype_size(dtype));
    const int64_t most = static_cast<int64_t>(kMadeBytes) / size;
    const auto shared = std::make_shared<const ParameterSlot::Part>(part);
    for (int64_t begin = 0; begin < count; begin += most) {
      const int64_t piece = std::min(most, count - begin);
      upload_->add(to + begin * size, static_cast<size_t>(piece * size),
                   [source = &source_, shared, begin, piece, dtype](char* dst) {
                     read_elements(*source, *shared, begin, piece, dtype, dst);
                   });
    }
  }

  // product: the type that the products are in.
  void quantised(const ParameterSlot& slot, DType product) {
    const DType type = weights_.eight_bit;
    const Tensor values = make_tensor(device_, slot.shape, type);
    const Tensor scales = make_tensor(device_, {slot.shape[0]}, DType::kF32);
    const int64_t columns = slot.shape.numel() / slot.shape[0];
    // A few rows at a time: host memory stays small.
    const int64_t most =
        std::max<int64_t>(1, kStagingBytes / (columns * static_cast<int64_t>(sizeof(float))));
    int64_t at = 0;  // row of the whole
    for (const ParameterSlot::Part& part : slot.parts) {
      const int64_t rows = part.shape[0];
      for (int64_t row = 0; row < rows; row += most) {
        const int64_t count = std::min(most, rows - row);
        rows_.resize(static_cast<size_t>(count * columns));
        bytes_.resize(rows_.size());
        scales_.resize(static_cast<size_t>(count));
        read(part, row * columns, count * columns, DType::kF32, rows_.data());
        quantise_rows(rows_.data(), count, columns, type, bytes_.data(), scales_.data());
        device_.copy_to_device(static_cast<char*>(values.data()) + at * columns, bytes_.data(),
                               bytes_.size());
        device_.copy_to_device(static_cast<float*>(scales.data()) + at, scales_.data(),
                               scales_.size() * sizeof(float));
        at += count;
      }
    }
    slot.store({values, scales, product, weights_.products});
  }

  // A few rows at a time: host memory stays small.
  void split(const ParameterSlot& slot, int64_t parts) {
    Shape shape = slot.shape;  // [out,in,...]
    shape[1] *= parts;
    const Tensor tensor = make_tensor(device_, shape, DType::kBF16);
    char* to = static_cast<char*>(tensor.data());
    for (const ParameterSlot::Part& part : slot.parts) {
      const int64_t rows = part.shape[0], columns = part.shape.numel() / rows;
      const int64_t most =
          std::max<int64_t>(1, kStagingBytes / (columns * static_cast<int64_t>(sizeof(float))));
      for (int64_t row = 0; row < rows; row += most) {
        const int64_t count = std::min(most, rows - row);
        rows_.resize(static_cast<size_t>(count * columns));
        read(part, row * columns, count * columns, DType::kF32, rows_.data());
        split_rows(count, columns, parts);
        device_.copy_to_device(to, halves_.data(), halves_.size() * sizeof(uint16_t));
        to += halves_.size() * sizeof(uint16_t);
      }
    }
    slot.store(tensor);
  }

  // Of rows_ to halves_: the high parts of each row, again, and, of three parts, its low ones.
  void split_rows(int64_t rows, int64_t columns, int64_t parts) {
    halves_.resize(static_cast<size_t>(parts * rows * columns));
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = rows_.data() + row * columns;
      uint16_t* to = halves_.data() + parts * row * columns;
      for (int64_t i = 0; i < columns; ++i) {
        const uint16_t high = float_to_bf16(from[i]);
        to[i] = to[columns + i] = high;
        if (parts == 3) to[2 * columns + i] = float_to_bf16(from[i] - bf16_to_float(high));
      }
    }
  }

  Device& device_;
  const ParameterSource& source_;
  DType compute_;
  const WeightFormat& weights_;
  const SlotFilter& only_;
  StoredForms forms_;
  std::vector<char> staging_;
  std::vector<float> rows_, scales_;  // of quantised() and split()
  std::vector<char> bytes_;
  std::vector<uint16_t> halves_;
  std::optional<ParallelUpload> upload_;  // last: its threads end before what they read from goes
};

}  // namespace

uint64_t bytes_to_load(const VisitModel& visit, DType compute, const WeightFormat& weights,
                       std::span<const PrecisionRow> precisions) {
  ByteCount count(weights, {compute, weights, rules_of(visit, precisions)});
  visit(count);
  return count.bytes;
}

void load_parameters(const VisitModel& visit, Device& device, const ParameterSource& source, DType compute,
                     const WeightFormat& weights, const SlotFilter& only,
                     std::span<const PrecisionRow> precisions) {
  require<InternalError>(compute == DType::kF32 || compute == DType::kBF16 || compute == DType::kF16,
                         "load_parameters: compute dtype f32, bf16 or f16 expected, got ", compute);
  require<InternalError>(!weights.short_for_f32 || (compute == DType::kF32 && !weights),
                         "load_parameters: weights in 16 bits for products in f32 go with neither ", compute,
                         " nor 8 bits");
  MissingKeys missing(source);
  visit(missing);
  missing.check();
  Loader loader(device, source, compute, weights, only, rules_of(visit, precisions));
  visit(loader);
  loader.finish();
}

}  // namespace rocm_sd
