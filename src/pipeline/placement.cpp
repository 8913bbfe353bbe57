#include "pipeline/placement.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "runtime/devices.hpp"

namespace rocm_sd {
namespace {

constexpr const char* kForm =
    "expected PART=DEVICE with commas between them, as in text=cpu,unet=cuda:0,vae=cuda:1";

std::optional<Part> part_named(std::string_view name) {
  for (const Part part : kParts)
    if (part_name(part) == name) return part;
  return std::nullopt;
}

Device& open_for(std::string_view part, const std::string& name) {
  try {
    return device_named(name);
  } catch (const UsageError& e) {
    throw UsageError(concat("place: ", part, ": ", e.what()));
  } catch (const DeviceError& e) {
    throw DeviceError(concat("place: ", part, ": ", e.what()));
  }
}

}  // namespace

std::string_view part_name(Part part) {
  switch (part) {
    case Part::kText: return "text";
    case Part::kImage: return "image";
    case Part::kUnet: return "unet";
    case Part::kVae: return "vae";
  }
  return "";
}

Placement::Placement(std::string_view text, Device& rest, const std::string& rest_name) {
  PerPart<std::string> names;
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view entry = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = entry.find('=');
    require<UsageError>(equals != entry.npos && equals > 0 && equals + 1 < entry.size(), "place: \"",
                        printable(entry), "\": ", kForm);
    const std::string_view name = entry.substr(0, equals);
    require<UsageError>(name != "control",
                        "place: control: ControlNets are on the UNet's device; expected unet=DEVICE");
    const std::optional<Part> part = part_named(name);
    require<UsageError>(part.has_value(), "place: no part \"", printable(name),
                        "\": expected text, image, unet or vae");
    require<UsageError>(!of_[*part], "place: ", name, " is named twice");
    names[*part] = entry.substr(equals + 1);
    of_[*part] = &open_for(name, names[*part]);
  }
  for (const Part part : {Part::kUnet, Part::kText, Part::kImage, Part::kVae}) {
    if (!of_[part]) of_[part] = &rest, names[part] = rest_name;
    if (std::ranges::find(devices_, of_[part]) != devices_.end()) continue;
    devices_.push_back(of_[part]);
    names_.push_back(names[part]);
  }
}

const std::string& Placement::name(const Device& device) const {
  return names_[static_cast<size_t>(std::ranges::find(devices_, &device) - devices_.begin())];
}

std::vector<Part> Placement::parts_on(const Device& device) const {
  std::vector<Part> out;
  for (const Part part : kParts)
    if (of_[part] == &device) out.push_back(part);
  return out;
}

std::string Placement::describe_parts(const Device& device) const {
  std::string out;
  for (const Part part : parts_on(device)) out += concat(out.empty() ? "" : ", ", part_name(part));
  return out;
}

std::string Placement::describe() const {
  if (!several()) return devices_.front()->name();
  std::string out;
  for (const Device* device : devices_)
    out += concat(out.empty() ? "" : "; ", describe_parts(*device), ": ", device->name());
  return out;
}

Tensor moved_to(Device& to, Device& from, const Tensor& tensor) {
  if (!tensor || &to == &from) return tensor;
  require<InternalError>(tensor.is_contiguous(), "place: a view of ", tensor.shape(), " with gaps");
  const bool on_host = &from == &host_device();
  const Tensor there = make_tensor(to, tensor.shape(), tensor.dtype());
  std::vector<char> host(on_host ? 0 : tensor.bytes());
  if (!on_host) from.copy_to_host(host.data(), tensor.data(), tensor.bytes());
  to.copy_to_device(there.data(), on_host ? tensor.data() : host.data(), tensor.bytes());
  return there;
}

PartArenas::PartArenas(const Placement& place) {
  for (Device* device : place.devices()) {
    arenas_.push_back(std::make_unique<Arena>(*device));
    for (const Part part : place.parts_on(*device)) of_[part] = arenas_.back().get();
  }
}

void PartArenas::release() {
  for (const auto& arena : arenas_) arena->release();
}

size_t PartArenas::used_peak() const {
  size_t bytes = 0;
  for (const auto& arena : arenas_) bytes += arena->used_peak();
  return bytes;
}

}  // namespace rocm_sd
