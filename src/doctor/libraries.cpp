#include "doctor/libraries.hpp"

#include <initializer_list>

#include "base/dynamic_library.hpp"

namespace rocm_sd::doctor {
namespace {

struct Known {
  const char* product;
  const char* function;
  std::initializer_list<const char*> names;
};

// Newest first: the loader takes the first that is there.
const std::initializer_list<Known> kKnown = {
    {"HIP runtime",
     "hipInit",
     {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "/opt/rocm/lib/libamdhip64.so"}},
    {"rocBLAS",
     "rocblas_create_handle",
     {"librocblas.so.5", "librocblas.so.4", "/opt/rocm/lib/librocblas.so"}},
    {"hipBLASLt",
     "hipblasLtCreate",
     {"libhipblaslt.so.1", "libhipblaslt.so.0", "/opt/rocm/lib/libhipblaslt.so"}},
    {"MIOpen", "miopenCreate", {"libMIOpen.so.1", "/opt/rocm/lib/libMIOpen.so"}},
    {"RCCL", "ncclGetVersion", {"librccl.so.1", "/opt/rocm/lib/librccl.so"}},
    {"CUDA driver", "cuInit", {"libcuda.so.1"}},
    {"cuBLASLt", "cublasLtCreate", {"libcublasLt.so.13", "libcublasLt.so.12"}},
    {"cuDNN", "cudnnCreate", {"libcudnn.so.9", "libcudnn.so.8"}},
    {"NCCL", "ncclGetVersion", {"libnccl.so.2"}},
};

}  // namespace

std::vector<Library> find_libraries() {
  std::vector<Library> found;
  for (const Known& known : kKnown) {
    Library library{.product = known.product};
    const DynamicLibrary opened(known.names);
    if (!opened)
      library.problem = opened.problem();
    else if (library.file = opened.name(); opened.symbol(known.function) == nullptr)
      library.problem = library.file + " has no function " + known.function;
    found.push_back(library);
  }
  return found;
}

}  // namespace rocm_sd::doctor
