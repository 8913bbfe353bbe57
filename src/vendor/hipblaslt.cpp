// hipBLASLt, found when the program runs.
#include "vendor/hipblaslt_api.hpp"
#include "vendor/lt_library.hpp"

namespace rocm_sd::vendor {
namespace {

std::string reason(HipblasLt::Status status) { return concat("status ", status); }

}  // namespace

std::shared_ptr<MatmulLibrary> open_hipblaslt() {
  const DynamicLibrary library = open_library(HipblasLt::kProduct);
  HipblasLt::Api api;
#define ROCM_SD_LOAD(name, ...) \
  api.name = reinterpret_cast<decltype(api.name)>(find_function(library, "hipblasLt" #name));
  ROCM_SD_HIPBLASLT_FUNCTIONS(ROCM_SD_LOAD)
#undef ROCM_SD_LOAD
  return std::make_shared<LtLibrary<HipblasLt>>(api, reason);
}

}  // namespace rocm_sd::vendor
