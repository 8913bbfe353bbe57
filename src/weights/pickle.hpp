// Reads Python pickles that describe tensors, as torch.save writes them, and runs nothing: opcodes are
// interpreted, and the few classes and functions that such files name are known here, by an allow-list. Any
// other is an error that names it.
// Opcodes: CPython's Lib/pickletools.py (protocols 2 to 5). Functions: torch/_utils.py,
// torch/serialization.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"

namespace rocm_sd {

// A tensor of a pickle: elements of a storage, which lies outside the pickle.
struct PickledTensor {
  std::string storage;          // its key
  uint64_t storage_count = 0;   // elements that the storage has
  DType dtype = DType::kF32;    // of the tensor's elements
  bool untyped = false;         // the storage counts bytes (torch.UntypedStorage)
  uint64_t offset = 0;          // of the first element, in elements
  std::vector<int64_t> shape;   // each >= 0
  std::vector<int64_t> stride;  // elements, each >= 0, as many as dimensions
};

struct PickledValue {
  enum class Kind : uint8_t {
    kNone,
    kNumber,   // integer or boolean
    kText,     // text or bytes
    kList,     // list, tuple or set: items
    kDict,     // items: key, value, key, value, ...
    kGlobal,   // text: "module.name"
    kStorage,  // items: the five parts of its persistent id
    kTensor,   // number: index into tensors
    kOther,    // a float, or an object of a class of the allow-list that holds no tensor we want: not looked
               // into
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;
  std::string text;
  std::vector<uint32_t> items;  // indices into values
};

// What a pickle holds. Values refer to each other by index: nothing here recurses, however deep a file nests.
struct PickledObjects {
  std::vector<PickledValue> values;
  std::vector<PickledTensor> tensors;
  uint32_t root = 0;  // the value that the pickle leaves

  const PickledValue& at(uint32_t index) const { return values[index]; }
  // The value under a text key of a dictionary; nothing where there is none.
  std::optional<uint32_t> find(uint32_t dict, std::string_view key) const;
};

// Interprets one pickle, which begins at bytes[position] and ends with its STOP; moves position behind it.
// Throws FormatError, naming the byte, for opcodes, classes and functions that are not allowed, and for a
// pickle that is cut off, empty or larger than 4 M values.
PickledObjects read_pickle(std::string_view bytes, size_t& position, std::string_view what);

}  // namespace rocm_sd
