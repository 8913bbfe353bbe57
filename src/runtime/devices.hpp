// Devices by name, as --device takes them.
#pragma once

#include <string>
#include <vector>

#include "runtime/device.hpp"

namespace rocm_sd {

// "cpu"; "hip", "hip:1" (AMD GPUs through libamdhip64); "cuda", "cuda:0" (NVIDIA GPUs through libcuda);
// "emu:gfx1100" (that AMD GPU in software, docs/emulator.md);
// "auto": the first GPU with native code in its archive, else the CPU. Opened once per process.
// Throws UsageError for a name of another form, DeviceError where there is no such device, with the reason.
Device& device_named(const std::string& name);

// The device once more, as somebody of its own: memory, kernels and stream of GPUs are then apart, so that
// several pipelines may work on one GPU at the same time. copy: 0 is device_named()'s. The CPU is one device
// for all, which threads may share. Opened once per process. Throws like device_named().
Device& device_copy(const std::string& name, int copy);

// The GPU that the calling thread has made current in the HIP or CUDA runtime, for "hip:current" and
// "cuda:current". Where that is a device's primary context it is the same as device_named()'s; a context of
// the caller's is adopted, and must live as long as anything uses the device. Throws like device_named().
Device& current_device(const std::string& name);

struct DeviceListing {
  std::string name;    // as device_named takes it
  std::string detail;  // "NVIDIA H200, sm_90, 139.8 GiB", or why it cannot be used
  bool usable = false;
};
// The host, every GPU that a driver reports, usable or not, and the emulated GPUs that have kernels.
std::vector<DeviceListing> list_devices();

}  // namespace rocm_sd
