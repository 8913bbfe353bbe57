// What a tuned choice holds for: a device as tables name it, and the code that was measured on it.
#pragma once

#include <string>

#include "runtime/device.hpp"

namespace rocm_sd::tuning {

struct Identity {
  std::string product;  // "NVIDIA H200", "AMD EPYC 9354, 2 threads, AVX-512"
  std::string arch;     // "sm_90"; "host"
  int units = 0;        // compute units; threads of the host
  std::string code;     // "0.1.0+0123456789abcdef": version, and a hash of the device's kernel archive

  bool operator==(const Identity&) const = default;
};

// Of an open device. Reads the index of the device's archive: for use once per device.
Identity identity_of(Device& device);

// How well a choice that was made for `there` suits `here`. Choices of another architecture, of another
// number of compute units, or of another CPU are of no use: the default without tuning is closer.
enum class Match { kNone, kSibling, kSame };  // kSibling: another product of the same chip and size
Match match(const Identity& here, const Identity& there);

}  // namespace rocm_sd::tuning
