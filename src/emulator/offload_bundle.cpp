// Source of the format: the documentation of clang-offload-bundler.
#include "emulator/offload_bundle.hpp"

#include <cstring>
#include <string_view>

#include "base/error.hpp"

namespace rocm_sd::emu {

namespace {
constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__", kCompressed = "CCOB";
constexpr uint64_t kMaxObjects = 4096;

bool begins_with(std::span<const std::byte> file, std::string_view magic) {
  return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
}
}  // namespace

bool is_offload_bundle(std::span<const std::byte> file) {
  return begins_with(file, kMagic) || begins_with(file, kCompressed);
}

std::vector<BundledObject> read_offload_bundle(std::span<const std::byte> file, const std::string& what) {
  require<FormatError>(!begins_with(file, kCompressed), what,
                       ": a compressed offload bundle; clang-offload-bundler --unbundle takes it apart");
  require<FormatError>(begins_with(file, kMagic), what, ": not an offload bundle");
  uint64_t at = kMagic.size();
  const auto part = [&](uint64_t offset, uint64_t bytes) {
    require<FormatError>(offset <= file.size() && bytes <= file.size() - offset, what, ": ", bytes,
                         " bytes at ", offset, " lie outside of the bundle's ", file.size());
    return file.subspan(offset, bytes);
  };
  const auto number = [&] {
    uint64_t value = 0;
    std::memcpy(&value, part(at, sizeof(value)).data(), sizeof(value));
    at += sizeof(value);
    return value;
  };
  const uint64_t count = number();
  require<FormatError>(count <= kMaxObjects, what, ": a bundle of ", count, " objects");
  std::vector<BundledObject> out;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t offset = number(), bytes = number(), length = number();
    const auto name = part(at, length);
    at += length;
    const auto object = part(offset, bytes);
    // hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+
    std::string_view id(reinterpret_cast<const char*>(name.data()), name.size());
    const size_t arch = id.find("--gfx");
    if (id.find("amdgcn") == std::string_view::npos || arch == std::string_view::npos) continue;
    id = id.substr(arch + 2);
    out.push_back({std::string(id.substr(0, id.find(':'))), object});
  }
  return out;
}

}  // namespace rocm_sd::emu
