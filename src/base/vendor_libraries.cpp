#include "base/vendor_libraries.hpp"

#include "base/error.hpp"

namespace rocm_sd {
namespace {

const VendorLibrary kLibraries[] = {
    {"HIP runtime",
     "ROCM_SD_HIP_LIBRARY",
     "hipInit",
     {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so"}},
    {"rocBLAS",
     "ROCM_SD_ROCBLAS",
     "rocblas_create_handle",
     {"librocblas.so.5", "librocblas.so.4", "/opt/rocm/lib/librocblas.so"}},
    {"hipBLASLt",
     "ROCM_SD_HIPBLASLT",
     "hipblasLtCreate",
     {"libhipblaslt.so.1", "libhipblaslt.so.0", "/opt/rocm/lib/libhipblaslt.so"}},
    {"MIOpen", "ROCM_SD_MIOPEN", "miopenCreate", {"libMIOpen.so.1", "/opt/rocm/lib/libMIOpen.so"}},
    {"RCCL", "ROCM_SD_RCCL", "ncclGetVersion", {"librccl.so.1", "/opt/rocm/lib/librccl.so"}},
    {"CUDA driver", "ROCM_SD_CUDA_LIBRARY", "cuInit", {"libcuda.so.1"}},
    {"cuBLASLt", "ROCM_SD_CUBLASLT", "cublasLtCreate", {"libcublasLt.so.13", "libcublasLt.so.12"}},
    {"cuDNN", "ROCM_SD_CUDNN", "cudnnCreate", {"libcudnn.so.9", "libcudnn.so.8"}},
    {"NCCL", "ROCM_SD_NCCL", "ncclGetVersion", {"libnccl.so.2"}},
};

}  // namespace

std::span<const VendorLibrary> vendor_libraries() { return kLibraries; }

const VendorLibrary& vendor_library(std::string_view product) {
  for (const VendorLibrary& library : kLibraries)
    if (product == library.product) return library;
  throw InternalError(concat("no vendor's library is called ", product));
}

DynamicLibrary open_vendor_library(const VendorLibrary& library) {
  return DynamicLibrary::chosen_by(library.variable, library.names);
}

}  // namespace rocm_sd
