#include "weights/torch_file.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/checked.hpp"
#include "weights/pickle.hpp"
#include "weights/zip_records.hpp"

namespace rocm_sd {
namespace {

using Kind = PickledValue::Kind;

constexpr uint64_t kMaxPickleBytes = 64 << 20;
constexpr size_t kMaxTensors = 1'000'000;
constexpr int kMaxDepth = 8;  // of dictionaries within dictionaries
constexpr size_t kMaxVisits = 8'000'000;
constexpr int64_t kMaxDim = int64_t{1} << 40;

// The first pickle of the older form is the number 0x1950a86a20f9469cfc6c (LONG1, ten bytes), the second a
// version.
constexpr std::string_view kOldMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr int64_t kOldVersion = 1001;

// Where a storage lies.
struct StoragePlace {
  uint64_t begin = 0, bytes = 0;
};
using Storages = std::unordered_map<std::string, StoragePlace>;

struct NamedTensor {
  std::string name;
  const PickledTensor* tensor;
};

// The dictionaries below a value, as names joined by dots. What is no text key, no dictionary and no tensor
// is left out: counters, settings, optimisers' lists.
class Flattening {
 public:
  Flattening(const PickledObjects& objects, std::string_view what) : objects_(objects), what_(what) {}

  std::vector<NamedTensor> run() {
    uint32_t from = objects_.root;
    for (const std::string_view key : {"state_dict", "params_ema", "params"}) {
      const std::optional<uint32_t> inner = objects_.find(from, key);
      if (inner && objects_.at(*inner).kind == Kind::kDict) {
        from = *inner;
        break;
      }
    }
    if (objects_.at(from).kind == Kind::kTensor)
      return {{"tensor", &objects_.tensors[static_cast<size_t>(objects_.at(from).number)]}};
    require<FormatError>(objects_.at(from).kind == Kind::kDict, what_,
                         ": expected a dictionary of tensors, found another object (a whole module? save its "
                         "state_dict())");
    visit(from, "", 0);
    return std::move(out_);
  }

 private:
  void visit(uint32_t dict, const std::string& prefix, int depth) {
    require<FormatError>(depth < kMaxDepth, what_, ": dictionaries nest deeper than ", kMaxDepth, " at \"",
                         printable(prefix), "\"");
    const std::vector<uint32_t>& items = objects_.at(dict).items;
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const PickledValue &key = objects_.at(items[i]), &value = objects_.at(items[i + 1]);
      require<FormatError>(++visits_ <= kMaxVisits, what_, ": more than ", kMaxVisits,
                           " entries in dictionaries that refer to each other");
      if (key.kind != Kind::kText || (value.kind != Kind::kTensor && value.kind != Kind::kDict)) continue;
      const std::string name = prefix.empty() ? key.text : concat(prefix, ".", key.text);
      check_name(name);
      if (value.kind == Kind::kDict) {
        visit(items[i + 1], name, depth + 1);
        continue;
      }
      require<FormatError>(out_.size() < kMaxTensors, what_, ": more than ", kMaxTensors, " tensors");
      const auto [known, is_new] = positions_.emplace(name, out_.size());
      const PickledTensor* tensor = &objects_.tensors[static_cast<size_t>(value.number)];
      if (is_new)
        out_.push_back({name, tensor});
      else
        out_[known->second].tensor = tensor;  // Python keeps the last entry of a key
    }
  }

  void check_name(std::string_view name) const {
    constexpr size_t kMaxNameBytes = 1024;
    require<FormatError>(name.size() <= kMaxNameBytes, what_, ": a tensor name has ", name.size(),
                         " bytes, at most ", kMaxNameBytes, " are accepted: \"", printable(name, 60), "\"");
    for (const unsigned char c : name)
      require<FormatError>(c >= 0x20 && c != 0x7f, what_, ": control byte in the tensor name \"",
                           printable(name), "\"");
  }

  const PickledObjects& objects_;
  std::string_view what_;
  std::vector<NamedTensor> out_;
  std::unordered_map<std::string, size_t> positions_;
  size_t visits_ = 0;
};

bool is_contiguous(const PickledTensor& tensor) {
  int64_t expected = 1;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    if (tensor.shape[d] != 1 && tensor.stride[d] != expected) return false;
    expected *= tensor.shape[d];
  }
  return true;
}

// Elements in row-major order from wherever their strides say that they are.
std::vector<char> gather(const InputFile& file, const PickledTensor& tensor, uint64_t begin, uint64_t span,
                         uint64_t count) {
  const size_t size = dtype_size(tensor.dtype);
  std::vector<char> source(static_cast<size_t>(span) * size), out(static_cast<size_t>(count) * size);
  file.read_at(begin, source.data(), source.size());
  std::vector<int64_t> index(tensor.shape.size(), 0);
  int64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(out.data() + i * size, source.data() + static_cast<size_t>(at) * size, size);
    for (size_t d = index.size(); d-- > 0;) {
      at += tensor.stride[d];
      if (++index[d] < tensor.shape[d]) break;
      at -= tensor.stride[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
  return out;
}

// Puts the tensors where their storages lie.
class Placement {
 public:
  Placement(const InputFile& file, const Storages& storages, std::string_view what)
      : file_(file), storages_(storages), what_(what) {}

  TorchFile run(const std::vector<NamedTensor>& tensors) {
    for (const NamedTensor& named : tensors) place(named);
    return std::move(out_);
  }

 private:
  void place(const NamedTensor& named) {
    const PickledTensor& tensor = *named.tensor;
    const std::string title = concat(what_, ": tensor \"", printable(named.name), "\"");
    const auto storage = storages_.find(tensor.storage);
    require<FormatError>(storage != storages_.end(), title, ": its storage \"", printable(tensor.storage),
                         "\" is not in the file");
    const uint64_t size = dtype_size(tensor.dtype), unit = tensor.untyped ? 1 : size;
    require<FormatError>(storage->second.bytes == checked_mul(tensor.storage_count, unit, title), title,
                         ": its storage has ", storage->second.bytes, " bytes, expected ",
                         tensor.storage_count, " elements of ", unit);
    require<FormatError>(tensor.shape.size() <= Shape::kMaxRank, title, ": ", tensor.shape.size(),
                         " dimensions, at most ", Shape::kMaxRank, " are accepted");
    for (const int64_t d : tensor.shape)
      require<FormatError>(d <= kMaxDim, title, ": dimension ", d, " is above 2^40");
    const auto count = static_cast<uint64_t>(checked_product(tensor.shape, title));
    uint64_t span = count == 0 ? 0 : 1;  // elements from the first to the last
    for (size_t d = 0; d < tensor.shape.size() && count > 0; ++d)
      span = checked_add(span,
                         checked_mul(static_cast<uint64_t>(tensor.shape[d] - 1),
                                     static_cast<uint64_t>(tensor.stride[d]), title),
                         title);
    const uint64_t begin = checked_mul(tensor.offset, size, title);
    const bool inside = checked_add(begin, checked_mul(span, size, title), title) <= storage->second.bytes;
    require<FormatError>(inside || count == 0, title, ": elements outside its storage \"",
                         printable(tensor.storage), "\" of ", storage->second.bytes, " bytes");
    TensorEntry entry{.name = named.name,
                      .dtype = tensor.dtype,
                      .shape = Shape(std::span<const int64_t>(tensor.shape)),
                      .begin = storage->second.begin + (count == 0 ? 0 : begin),
                      .bytes = checked_mul(count, size, title)};
    out_.gathered.emplace_back();
    if (count > 0 && !is_contiguous(tensor)) {
      gathered_bytes_ = checked_add(gathered_bytes_, entry.bytes, title);
      require<FormatError>(gathered_bytes_ <= file_.size(), title,
                           ": an expanded view: the values of views "
                           "would take more memory than the file has bytes; save it with .contiguous()");
      out_.gathered.back() = gather(file_, tensor, entry.begin, span, count);
    }
    out_.header.entries.push_back(std::move(entry));
  }

  const InputFile& file_;
  const Storages& storages_;
  std::string_view what_;
  TorchFile out_;
  uint64_t gathered_bytes_ = 0;
};

std::string read_record(const InputFile& file, const ZipRecord& record, uint64_t most,
                        std::string_view what) {
  require<FormatError>(record.bytes <= most, what, ": record \"", printable(record.name), "\" has ",
                       record.bytes, " bytes, at most ", most, " are accepted");
  std::string out(static_cast<size_t>(record.bytes), '\0');
  file.read_at(record.begin, out.data(), record.bytes);
  return out;
}

// In parallel: a model's file is read at the rate of its checksums.
void check_all_contents(const InputFile& file, const std::vector<ZipRecord>& records, std::string_view what) {
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic)
  for (size_t i = 0; i < records.size(); ++i) {
    try {
      check_contents(file, records[i], what);
    } catch (...) {
#pragma omp critical(rocm_sd_torch_file)
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

TorchFile read_zip_form(const InputFile& file, std::string_view what) {
  const std::vector<ZipRecord> records = read_zip_records(file, what);
  check_all_contents(file, records, what);
  const ZipRecord* pickle = nullptr;
  for (const ZipRecord& record : records) {
    require<FormatError>(!record.name.ends_with("/constants.pkl"), what,
                         ": a TorchScript archive (torch.jit.save), which holds code; save its state_dict()");
    if (!record.name.ends_with("/data.pkl") && record.name != "data.pkl") continue;
    require<FormatError>(pickle == nullptr, what, ": two records are named data.pkl");
    pickle = &record;
  }
  require<FormatError>(pickle != nullptr, what, ": a zip archive without data.pkl: no file of torch.save");
  const std::string folder =
      pickle->name.substr(0, pickle->name.size() - std::string_view("data.pkl").size());
  Storages storages;
  for (const ZipRecord& record : records) {
    if (record.name == folder + "byteorder") {
      const std::string order = read_record(file, record, 64, what);
      require<FormatError>(order == "little", what, ": byte order \"", printable(order),
                           "\", expected little");
    }
    if (record.name.starts_with(folder + "data/"))
      storages[record.name.substr(folder.size() + 5)] = {record.begin, record.bytes};
  }
  const std::string text = read_record(file, *pickle, kMaxPickleBytes, what);
  size_t position = 0;
  const PickledObjects objects = read_pickle(text, position, what);
  require<FormatError>(position == text.size(), what, ": ", text.size() - position,
                       " bytes after the pickle in data.pkl");
  return Placement(file, storages, what).run(Flattening(objects, what).run());
}

// The older form: magic number, version, machine, object and the list of storages' keys, each a pickle; then
// for each key its element count (8 bytes) and its bytes.
TorchFile read_old_form(const InputFile& file, std::string_view what) {
  const uint64_t head_bytes = std::min(file.size(), kMaxPickleBytes);
  std::string head(static_cast<size_t>(head_bytes), '\0');
  file.read_at(0, head.data(), head_bytes);
  size_t position = 0;
  read_pickle(head, position, what);
  const PickledObjects version = read_pickle(head, position, what);
  require<FormatError>(
      version.at(version.root).kind == Kind::kNumber && version.at(version.root).number == kOldVersion, what,
      ": a PyTorch file of an unknown version, expected ", kOldVersion);
  const PickledObjects machine = read_pickle(head, position, what);
  const std::optional<uint32_t> little = machine.find(machine.root, "little_endian");
  require<FormatError>(little && machine.at(*little).number == 1, what,
                       ": written on a big-endian machine, which is not read");
  const PickledObjects objects = read_pickle(head, position, what);
  const PickledObjects keys = read_pickle(head, position, what);
  require<FormatError>(keys.at(keys.root).kind == Kind::kList, what, ": expected the list of storages' keys");
  std::unordered_map<std::string, uint64_t> unit;  // bytes per element, by key
  for (const PickledTensor& tensor : objects.tensors)
    unit[tensor.storage] = tensor.untyped ? 1 : dtype_size(tensor.dtype);
  Storages storages;
  uint64_t at = position;
  for (const uint32_t item : keys.at(keys.root).items) {
    const PickledValue& key = keys.at(item);
    const auto known = unit.find(key.text);
    require<FormatError>(key.kind == Kind::kText && known != unit.end(), what, ": storage \"",
                         printable(key.text), "\" belongs to no tensor");
    uint64_t count;
    file.read_at(at, &count, sizeof(count));
    const uint64_t bytes = checked_mul(count, known->second, what);
    at = checked_add(at + sizeof(count), bytes, what);
    require<FormatError>(at <= file.size(), what, ": truncated: ", at - file.size(), " bytes of storage \"",
                         printable(key.text), "\" are missing");
    require<FormatError>(storages.emplace(key.text, StoragePlace{at - bytes, bytes}).second, what,
                         ": storage \"", printable(key.text), "\" stands twice");
  }
  require<FormatError>(at == file.size(), what, ": ", file.size() - at, " bytes after the last storage");
  return Placement(file, storages, what).run(Flattening(objects, what).run());
}

}  // namespace

bool is_torch_file(std::string_view head) {
  constexpr size_t kFirstPickle = 32;  // PROTO, FRAME, the number, STOP
  return head.starts_with("PK\3\4") ||
         (head.starts_with('\x80') && head.substr(0, kFirstPickle).find(kOldMagic) != head.npos);
}

TorchFile read_torch_file(const InputFile& file, std::string_view what) {
  std::string head(static_cast<size_t>(std::min<uint64_t>(file.size(), 16)), '\0');
  file.read_at(0, head.data(), head.size());
  return head.starts_with("PK") ? read_zip_form(file, what) : read_old_form(file, what);
}

}  // namespace rocm_sd
