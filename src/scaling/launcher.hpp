// Which rank this process is, as torchrun, mpirun, srun or a shell script says by environment variables.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace rocm_sd {

struct Launch {
  std::string launcher;  // "torchrun"
  int rank = 0, count = 1;
  int local_rank = 0, local_count = 1;  // among those of this host
  std::string job;                      // the same for all ranks of a job, and no other's: a file name
};

using Environment = std::function<const char*(const char*)>;  // std::getenv

// The launch that the environment tells of; nothing where it tells of none. Throws UsageError for numbers
// that cannot be. Open MPI's variables come before torchrun's, and these before Slurm's: an allocation of
// Slurm sets its own for whatever runs in it.
std::optional<Launch> find_launch(const Environment& environment);

// Whether the ranks take MPI rather than shared memory: on several hosts, and where ROCM_SD_RANKS=mpi says so
// (shared: never). Throws UsageError for another value, and for several hosts whose ranks mpirun of Open MPI
// has not started.
bool takes_mpi(const Launch& launch, const Environment& environment);

// LoadOptions::devices "ranks", "ranks:cpu", "ranks:cuda": whether it asks for the ranks of a launch.
bool asks_for_ranks(std::string_view devices);
// The device of this rank: "cpu"; the GPU of its number on the host, "cuda:1", where `devices` names no
// number. auto: "hip" and "cuda" by what there is, else "cpu".
std::string device_of_rank(std::string_view devices, const Launch& launch, std::string_view kind_there);

}  // namespace rocm_sd
