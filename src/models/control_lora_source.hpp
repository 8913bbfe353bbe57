// A ControlNet-LoRA's parameters: the UNet's, with low-rank changes, and the file's own.
#pragma once

#include "models/parameters.hpp"
#include "weights/store.hpp"

namespace rocm_sd {

// Both stores must outlive the source.
class ControlLoraSource final : public ParameterSource {
 public:
  ControlLoraSource(const WeightStore& file, const WeightStore& unet) : file_(file), unet_(unet) {}

  std::string title() const override { return file_.title(); }
  bool has(const std::string& name) const override { return file_.has(name) || unet_.has(name); }
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override;
  void ignore(const std::string&) const override {}

  // Throws FormatError: parameters that neither store has, an "up" without its "down" or of another rank,
  // tensors of the file that no parameter is made of; ShapeError where one does not fit.
  void check(const std::vector<ParameterSlot::Part>& parts) const;

 private:
  const WeightStore& file_;
  const WeightStore& unet_;
};

}  // namespace rocm_sd
