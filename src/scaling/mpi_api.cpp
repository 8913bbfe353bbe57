#include "scaling/mpi_api.hpp"

#include <array>

#include "base/dynamic_library.hpp"
#include "base/error.hpp"

namespace rocm_sd::mpi {
namespace {

Api open_api() {
  const DynamicLibrary library = DynamicLibrary::chosen_by("ROCM_SD_MPI", {"libmpi.so.40", "libmpi.so"});
  require<DeviceError>(static_cast<bool>(library), "MPI: Open MPI is not there: ", library.problem(),
                       "; install it (openmpi-bin) on every host, or name its libmpi.so with ROCM_SD_MPI");
  library.make_global();
  Api api;
  const auto object = [&](const char* name) {
    void* const found = library.symbol(name);
    require<DeviceError>(found != nullptr, "MPI: ", library.name(), " is not Open MPI (it has no ", name,
                         "): of MPI's libraries only Open MPI is supported; name its libmpi.so with "
                         "ROCM_SD_MPI");
    return found;
  };
  api.world = static_cast<Communicator>(object("ompi_mpi_comm_world"));
  api.byte = static_cast<Datatype>(object("ompi_mpi_byte"));
  api.errors_return = static_cast<Handler>(object("ompi_mpi_errors_return"));
  const std::string file = library.name();
#define ROCM_SD_FIND(name, ...)                                           \
  api.name = reinterpret_cast<decltype(api.name)>(library.symbol(#name)); \
  require<DeviceError>(api.name != nullptr, "MPI: ", file, " has no function ", #name);
  ROCM_SD_MPI_FUNCTIONS(ROCM_SD_FIND)
#undef ROCM_SD_FIND
  std::array<char, kMaxVersionText + 1> text{};
  int length = 0;
  if (api.MPI_Get_library_version(text.data(), &length) == kSuccess) api.version = text.data();
  api.version = printable(api.version.substr(0, api.version.find(',')), 64);
  return api;
}

}  // namespace

std::string Api::reason(int error) const {
  std::array<char, kMaxErrorText + 1> text{};
  int length = 0, there = 0;
  // Before MPI_Init even this question would abort the process.
  const bool told = MPI_Initialized(&there) == kSuccess && there &&
                    MPI_Error_string(error, text.data(), &length) == kSuccess;
  return concat(told ? printable(text.data()) : "unknown error", " (", error, ")");
}

const Api& load_api() {
  static const Api api = open_api();
  return api;
}

}  // namespace rocm_sd::mpi
