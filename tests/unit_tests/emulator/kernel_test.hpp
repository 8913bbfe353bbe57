// What the tests of emulated kernels share: the objects that the build compiled, and buffers on the device.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/file.hpp"
#include "emulator/gpu.hpp"

namespace rocm_sd::emu {

// A target and an optimisation level that test kernels were compiled for.
struct Build {
  std::string target, level;
};
inline std::vector<Build> builds() {
  std::vector<Build> out;
  std::string list = ROCM_SD_EMULATOR_TARGETS;
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    for (const char* level : {"O1", "O3"}) out.push_back({list.substr(at, comma - at), level});
    at = comma + 1;
  }
  return out;
}
inline void PrintTo(const Build& build, std::ostream* os) { *os << build.target << ' ' << build.level; }
inline std::string build_name(const testing::TestParamInfo<Build>& info) {
  return info.param.target + "_" + info.param.level;
}

inline std::vector<std::byte> read_object(const Build& build, const std::string& name) {
  const std::string path =
      std::string(ROCM_SD_EMULATOR_OBJECTS) + "/" + build.target + "/" + name + "." + build.level + ".co";
  const std::string bytes = read_file(path, uint64_t{1} << 28);
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

class KernelTest : public testing::TestWithParam<Build> {
 protected:
  KernelTest() : gpu(GetParam().target) { gpu.options().instruction_limit = 1 << 24; }

  CodeObject load(const std::string& name) { return gpu.load(read_object(GetParam(), name), name); }
  bool is_cdna() const { return gpu.target().gfx9; }

  // A device buffer that holds the values.
  template <class T>
  T* upload(const std::vector<T>& values) {
    auto* out = static_cast<T*>(gpu.allocate(values.size() * sizeof(T)));
    std::memcpy(static_cast<void*>(out), values.data(), values.size() * sizeof(T));
    return out;
  }
  // A device buffer full of a byte that no result consists of.
  template <class T>
  T* poisoned(size_t count) {
    auto* out = static_cast<T*>(gpu.allocate(count * sizeof(T)));
    std::memset(static_cast<void*>(out), 0xa5, count * sizeof(T));
    return out;
  }
  template <class Params>
  Counters launch(const CodeObject& code, const char* kernel, const Launch& launch, const Params& params) {
    return gpu.launch(code, kernel, launch, std::as_bytes(std::span(&params, 1)));
  }

  Gpu gpu;
};

// Seeded inputs.
inline std::vector<float> random_floats(size_t count, float low, float high, uint32_t seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> pick(low, high);
  std::vector<float> out(count);
  for (float& v : out) v = pick(engine);
  return out;
}
template <class T>
std::vector<T> random_integers(size_t count, uint32_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<T> out(count);
  for (T& v : out) v = static_cast<T>(engine() >> (engine() % 48));
  return out;
}

}  // namespace rocm_sd::emu
