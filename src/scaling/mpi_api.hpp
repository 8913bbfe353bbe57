// The part of Open MPI that mpi_post.cpp calls, found when the program runs, so that building needs no MPI.
// Open MPI alone: other libraries have other handles under the same names of functions.
#pragma once

#include <cstddef>
#include <string>

namespace rocm_sd::mpi {

// Pointers to objects within the library, as Open MPI 1.5 to 5 has them (ompi/include/mpi.h).
using Communicator = struct CommunicatorTag*;
using Datatype = struct DatatypeTag*;
using Handler = struct HandlerTag*;
using Request = struct RequestTag*;

inline constexpr int kSuccess = 0;           // MPI_SUCCESS
inline constexpr int kThreadSerialized = 2;  // MPI_THREAD_SERIALIZED
inline constexpr int kMaxErrorText = 256;    // MPI_MAX_ERROR_STRING
inline constexpr int kMaxVersionText = 256;  // MPI_MAX_LIBRARY_VERSION_STRING
inline Request const kNoRequest = nullptr;   // not MPI_REQUEST_NULL: a place that holds none of ours

// X(name, parameters...)
#define ROCM_SD_MPI_FUNCTIONS(X)                                                                             \
  X(MPI_Initialized, int* flag)                                                                              \
  X(MPI_Init_thread, int* argc, char*** argv, int required, int* provided)                                   \
  X(MPI_Finalize)                                                                                            \
  X(MPI_Comm_rank, Communicator comm, int* rank)                                                             \
  X(MPI_Comm_size, Communicator comm, int* size)                                                             \
  X(MPI_Comm_set_errhandler, Communicator comm, Handler handler)                                             \
  X(MPI_Isend, const void* data, int count, Datatype type, int to, int tag, Communicator comm, Request* out) \
  X(MPI_Irecv, void* data, int count, Datatype type, int from, int tag, Communicator comm, Request* out)     \
  X(MPI_Test, Request* request, int* done, void* status)                                                     \
  X(MPI_Error_string, int error, char* text, int* length)                                                    \
  X(MPI_Get_library_version, char* text, int* length)

struct Api {
#define ROCM_SD_MEMBER(name, ...) int (*name)(__VA_ARGS__) = nullptr;
  ROCM_SD_MPI_FUNCTIONS(ROCM_SD_MEMBER)
#undef ROCM_SD_MEMBER
  Communicator world = nullptr;     // MPI_COMM_WORLD
  Datatype byte = nullptr;          // MPI_BYTE
  Handler errors_return = nullptr;  // MPI_ERRORS_RETURN
  std::string version;              // "Open MPI v4.1.4"

  // The text of an error, with its number.
  std::string reason(int error) const;
};

// Opens the file that ROCM_SD_MPI names, else libmpi.so.40 or libmpi.so. Throws DeviceError where there is
// none, or another MPI than Open MPI. Opened once per process.
const Api& load_api();

}  // namespace rocm_sd::mpi
