// Fuzzes the interpreter of tensor pickles: no pickle crashes it, and what it accepts is sound.
#include <cstddef>
#include <cstdint>

#include "base/error.hpp"
#include "weights/pickle.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t position = 0;
  try {
    const rocm_sd::PickledObjects objects =
        rocm_sd::read_pickle({reinterpret_cast<const char*>(data), size}, position, "fuzz");
    if (position == 0 || position > size || objects.root >= objects.values.size()) __builtin_trap();
    for (const rocm_sd::PickledValue& value : objects.values) {
      for (const uint32_t item : value.items)
        if (item >= objects.values.size()) __builtin_trap();
      if (value.kind == rocm_sd::PickledValue::Kind::kDict && value.items.size() % 2 != 0) __builtin_trap();
      if (value.kind == rocm_sd::PickledValue::Kind::kTensor &&
          static_cast<uint64_t>(value.number) >= objects.tensors.size())
        __builtin_trap();
    }
    for (const rocm_sd::PickledTensor& tensor : objects.tensors)
      if (tensor.shape.size() != tensor.stride.size()) __builtin_trap();
  } catch (const rocm_sd::Error&) {
  }
  return 0;
}
