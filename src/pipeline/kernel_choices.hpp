// Which kernels a pipeline has chosen, in sixteen digits: for telling whether another run chose the same.
#pragma once

#include <map>
#include <string>

#include "kernels/choice_record.hpp"
#include "runtime/device.hpp"

namespace rocm_sd {

class KernelChoices {
 public:
  void add(const ChoiceRecord& record);
  // 16 hexadecimal digits over all choices so far, whatever their order.
  std::string hash() const;
  // The version and a hash of the device's kernel archive ("0.1.0+0123456789abcdef"); read once.
  const std::string& code(Device& device);

 private:
  std::map<std::string, std::string> choices_;  // implementation by op and problem
  std::string code_;
};

}  // namespace rocm_sd
