#include "scaling/launcher.hpp"

#include <array>
#include <cctype>

#include "base/error.hpp"
#include "pipeline/options.hpp"
#include "scaling/rank_board.hpp"

namespace rocm_sd {
namespace {

// The variables of one launcher; "" for what it does not say.
struct Variables {
  const char *launcher, *rank, *count, *local_rank, *local_count;
  std::array<const char*, 4> job;
};

// Open MPI: "mpirun" sets OMPI_*; MPICH's Hydra sets PMI_*.
constexpr Variables kLaunchers[] = {
    {"mpirun",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "", ""}},
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"}},
    {"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_PORT", "PMI_ID", "", ""}},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", {"SLURM_JOB_ID", "SLURM_STEP_ID", "", ""}}};

std::string file_name_of(std::string text) {
  for (char& c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '_';
  return text.substr(0, 100);
}

}  // namespace

std::optional<Launch> find_launch(const Environment& environment) {
  const auto value = [&](const char* name) -> std::string {
    const char* text = *name ? environment(name) : nullptr;
    return text ? text : "";
  };
  for (const Variables& names : kLaunchers) {
    if (value(names.rank).empty() || value(names.count).empty()) continue;
    const auto number = [&](const char* name, int64_t otherwise, int64_t least, int64_t most) {
      const std::string text = value(name);
      if (text.empty()) return static_cast<int>(otherwise);
      try {
        return static_cast<int>(parse_integer(text, least, most));
      } catch (const UsageError& e) {
        throw UsageError(concat(name, ": ", e.what()));
      }
    };
    Launch out{.launcher = names.launcher};
    out.count = number(names.count, 1, 1, kMaxRanks);
    out.rank = number(names.rank, 0, 0, out.count - 1);
    out.local_rank = number(names.local_rank, out.rank, 0, kMaxRanks - 1);
    out.local_count = number(names.local_count, out.count, 1, kMaxRanks);
    if (out.launcher == "srun") {  // "2", "2(x3)": tasks of each host, the same on all
      const std::string each = value("SLURM_STEP_TASKS_PER_NODE");
      const bool plain = !each.empty() && each.find_first_not_of("0123456789") == std::string::npos;
      if (plain) out.local_count = number("SLURM_STEP_TASKS_PER_NODE", out.count, 1, kMaxRanks);
      if (each.find('(') != std::string::npos) out.local_count = 1;  // several hosts
    }
    std::string job = out.launcher;
    for (const char* part : names.job)
      if (const std::string text = value(part); !text.empty()) job += concat("-", text);
    if (const std::string own = value("ROCM_SD_JOB"); !own.empty()) job = own;
    out.job = file_name_of(job);
    return out;
  }
  return std::nullopt;
}

bool takes_mpi(const Launch& launch, const Environment& environment) {
  const char* set = environment("ROCM_SD_RANKS");
  const std::string asked = set ? set : "";
  require<UsageError>(asked.empty() || asked == "mpi" || asked == "shared",
                      "ROCM_SD_RANKS: expected mpi or shared, got \"", printable(asked), "\"");
  if (asked == "mpi") return true;
  const bool several = launch.local_count != launch.count;
  require<UsageError>(!several || (launch.launcher == "mpirun" && asked.empty()),
                      "devices: ranks: ", launch.launcher, " has started ", launch.count, " ranks, ",
                      launch.local_count,
                      " of them on this host: ranks of several hosts take MPI; start them with Open MPI's "
                      "mpirun, or one job on each host");
  return several;
}

bool asks_for_ranks(std::string_view devices) { return devices == "ranks" || devices.starts_with("ranks:"); }

std::string device_of_rank(std::string_view devices, const Launch& launch, std::string_view kind_there) {
  std::string name(devices.size() > 6 ? devices.substr(6) : kind_there);
  require<UsageError>(!name.empty() && name.find(',') == std::string::npos, "devices: \"", printable(devices),
                      "\": expected ranks, ranks:cpu, ranks:hip or ranks:cuda");
  if (name == "hip" || name == "cuda") name += concat(":", launch.local_rank);
  return name;
}

}  // namespace rocm_sd
