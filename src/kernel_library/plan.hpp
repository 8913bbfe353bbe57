// Plan: a problem on a device, ready to be launched; what the C interface hands out.
#pragma once

#include <optional>
#include <string>

#include "kernel_library/program.hpp"

namespace rocm_sd::library {

class Plan {
 public:
  // Chooses kernels and loads their code. Throws as plan_launches() does. The device must outlive the plan.
  Plan(Device& device, Problem problem);

  size_t workspace_bytes(bool prepared) const;
  size_t prepared_bytes() const { return program_ ? program_->prepared_bytes : 0; }
  int launches() const { return program_ ? static_cast<int>(program_->run.size()) : 1; }
  const std::string& explanation() const { return explanation_; }

  // ShapeError for operands that are missing, too many or not aligned; DeviceError where the driver fails.
  void prepare(const void* weight, void* prepared, void* stream) const;
  void launch(Pointers pointers, size_t workspace_bytes, void* stream) const;

 private:
  GpuDevice& gpu() const { return static_cast<GpuDevice&>(device_); }
  void check(const Pointers& pointers) const;
  void plan_on_host();
  void run_on_host(const Pointers& pointers) const;

  Device& device_;
  Problem problem_;
  std::string title_;
  std::optional<LaunchProgram> program_;  // on a GPU
  std::string explanation_;
};

}  // namespace rocm_sd::library
