// The version of the library.
#include "rocm_sd/pipeline.hpp"

#ifndef ROCM_SD_VERSION
#error "the build defines ROCM_SD_VERSION"
#endif

namespace rocm_sd {

std::string version() { return ROCM_SD_VERSION; }

}  // namespace rocm_sd
