// The factors of a LoRA's file on a GPU, laid out as merging multiplies them, brought there in one copy.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/tensor.hpp"
#include "weights/adapter.hpp"

namespace rocm_sd {

// Whether a module's change is up times down and nothing else.
bool is_plain_lora(const AdapterModule& module);

class DeviceFactors {
 public:
  // Those of the file's plain LoRAs for one component, rounded to dtype. Throws OutOfMemoryError.
  DeviceFactors(Device& device, const AdapterFile& file, Component component, DType dtype);

  struct Pair {
    Tensor up;    // [out,R], not scaled
    Tensor down;  // [in*pixels,R]: transposed, as linear() takes a weight
  };
  // Of the module that changes this tensor of the component, a plain LoRA.
  const Pair& of(const std::string& tensor) const { return pairs_.at(tensor); }
  uint64_t bytes() const { return all_ ? all_.bytes() : 0; }

 private:
  Tensor all_;
  std::map<std::string, Pair, std::less<>> pairs_;
};

}  // namespace rocm_sd
