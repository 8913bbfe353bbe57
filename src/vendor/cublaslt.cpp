// cuBLASLt, found when the program runs.
#include "vendor/cublaslt_api.hpp"
#include "vendor/lt_library.hpp"

namespace rocm_sd::vendor {
namespace {

std::string reason(CublasLt::Status status) { return concat("status ", status); }

}  // namespace

std::shared_ptr<MatmulLibrary> open_cublaslt() {
  const DynamicLibrary library = open_library(CublasLt::kProduct);
  CublasLt::Api api;
#define ROCM_SD_LOAD(name, ...) \
  api.name = reinterpret_cast<decltype(api.name)>(find_function(library, "cublasLt" #name));
  ROCM_SD_CUBLASLT_FUNCTIONS(ROCM_SD_LOAD)
#undef ROCM_SD_LOAD
  return std::make_shared<LtLibrary<CublasLt>>(api, reason);
}

}  // namespace rocm_sd::vendor
