#include "scaling/nccl_api.hpp"

#include "base/dynamic_library.hpp"
#include "base/error.hpp"

namespace rocm_sd::nccl {
namespace {

// 22705 is 2.27.5; before 2.9 it was 2708 for 2.7.8.
std::string version_text(int code) {
  const int scale = code < 10000 ? 1000 : 10000;
  return concat(code / scale, ".", code % scale / 100, ".", code % 100);
}

Api open_api(bool hip) {
  const char* const name = hip ? "RCCL" : "NCCL";
  const DynamicLibrary library =
      hip ? DynamicLibrary::chosen_by("ROCM_SD_NCCL", {"librccl.so.1", "librccl.so"})
          : DynamicLibrary::chosen_by("ROCM_SD_NCCL", {"libnccl.so.2", "libnccl.so"});
  require<DeviceError>(static_cast<bool>(library), name, " is not there: ", library.problem(),
                       "; install it, or name its file with ROCM_SD_NCCL");
  Api api;
#define ROCM_SD_FIND(function, ...)                                                   \
  api.function = reinterpret_cast<decltype(api.function)>(library.symbol(#function)); \
  require<DeviceError>(api.function != nullptr, name, ": ", library.name(), " has no function ", #function);
  ROCM_SD_NCCL_FUNCTIONS(ROCM_SD_FIND)
  ROCM_SD_FIND(ncclGetErrorString)
#undef ROCM_SD_FIND
  int version = 0;
  api.check(api.ncclGetVersion(&version), "ncclGetVersion");
  api.version = concat(name, " ", version_text(version));
  return api;
}

}  // namespace

void Api::check(int status, const char* call) const {
  if (status == kSuccess) return;
  const char* const reason = ncclGetErrorString(status);
  throw DeviceError(concat(version.empty() ? "NCCL" : version, ": ", call, ": ",
                           printable(reason ? reason : "unknown error", 128), " (", status, ")"));
}

const Api& load_api(DeviceKind kind) {
  if (kind == DeviceKind::kHip) {
    static const Api rccl = open_api(true);
    return rccl;
  }
  static const Api nccl = open_api(false);
  return nccl;
}

}  // namespace rocm_sd::nccl
