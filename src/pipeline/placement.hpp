// Which device each part of a pipeline is on (LoadOptions::place), and the memory of the forwards on each.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/part.hpp"
#include "runtime/arena.hpp"

namespace rocm_sd {

std::string_view part_name(Part part);  // "text", "image", "unet", "vae"

class Placement {
 public:
  Placement() = default;
  // text: "text=cpu,unet=cuda:0,vae=cuda:1", or empty. Parts that it does not name are on `rest`, which plans
  // call rest_name. The devices must outlive this. Throws UsageError for what is no part and a part that is
  // named twice, and what device_named() throws.
  Placement(std::string_view text, Device& rest, const std::string& rest_name);

  Device& operator[](Part part) const { return *of_[part]; }
  const std::vector<Device*>& devices() const { return devices_; }  // each once, the UNet's first
  bool several() const { return devices_.size() > 1; }
  const std::string& name(const Device& device) const;  // as the option has it: "cuda:0"
  std::vector<Part> parts_on(const Device& device) const;
  std::string describe_parts(const Device& device) const;  // "text, image"
  // "unet, vae: NVIDIA H200; text, image: host: AMD EPYC"; of one device its name alone.
  std::string describe() const;

 private:
  PerPart<Device*> of_;
  std::vector<Device*> devices_;
  std::vector<std::string> names_;  // of devices_
};

// `tensor`, which lies on `from`, in the memory of `to`: itself where both are one device, else copied
// through the host's memory. Empty tensors stay empty. Throws OutOfMemoryError.
Tensor moved_to(Device& to, Device& from, const Tensor& tensor);

// The memory of the planned forwards: an arena for each device, which the parts on it share.
class PartArenas {
 public:
  explicit PartArenas(const Placement& place);
  Arena& operator[](Part part) const { return *of_[part]; }
  void release();
  size_t used_peak() const;  // of all of them

 private:
  std::vector<std::unique_ptr<Arena>> arenas_;
  PerPart<Arena*> of_;
};

}  // namespace rocm_sd
