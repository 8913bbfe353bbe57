#include "tuning/identity.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/gpu.hpp"
#include "runtime/kernel_archive.hpp"

namespace rocm_sd::tuning {
namespace {

// The name without the ordinal in front ("cuda:0: ", "host: "): the same card in another slot is the same.
std::string without_ordinal(const std::string& name) {
  const size_t at = name.find(": ");
  return at == std::string::npos ? name : name.substr(at + 2);
}

// Over the names and hashes of all objects (FNV-1a, 64 bits); "" where there is no archive.
std::string archive_hash(const std::string& arch) {
  const auto path = find_kernel_archive(arch);
  if (!path) return "";
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  try {
    const KernelArchive archive(*path);
    for (const ArchivedObject& object : archive.objects()) {
      for (const char c : object.name) mix(static_cast<unsigned char>(c));
      for (int shift = 0; shift < 64; shift += 8) mix(object.hash >> shift & 0xff);
    }
  } catch (const Error& error) {  // whoever needs the archive's kernels will say so
    log().debug("tuning: {}", error.what());
    return "";
  }
  return fmt::format("+{:016x}", hash);
}

}  // namespace

Identity identity_of(Device& device) {
  Identity out;
  out.product = without_ordinal(device.name());
  out.code = ROCM_SD_VERSION;
  if (device.kind() == DeviceKind::kHost) {
    out.arch = "host";
    out.units = host_threads();
    return out;
  }
  const GpuTraits& traits = static_cast<GpuDevice&>(device).traits();
  out.product = out.product.substr(0, out.product.find(", "));  // not its memory: MI300X in any slot
  out.arch = traits.arch;
  out.units = traits.compute_units;
  out.code += archive_hash(traits.arch);
  return out;
}

Match match(const Identity& here, const Identity& there) {
  if (here.arch != there.arch || here.units != there.units) return Match::kNone;
  if (here.product == there.product) return Match::kSame;
  return here.arch == "host" ? Match::kNone : Match::kSibling;
}

}  // namespace rocm_sd::tuning
