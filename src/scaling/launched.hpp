// Launched: this process as one of the ranks that torchrun, mpirun or srun has started. All of them have the
// same options and make the same calls.
#pragma once

#include <memory>
#include <string>

#include "rocm_sd/multi.hpp"
#include "scaling/group.hpp"
#include "scaling/launcher.hpp"

namespace rocm_sd {

class Launched {
 public:
  // Meets the others. options.devices: "ranks", "ranks:cpu", ... Throws UsageError outside of a launch, and
  // for ranks on several hosts that mpirun has not started; DeviceError where a rank does not come.
  explicit Launched(const LoadOptions& options);

  // Loads this rank's share and compares with the others what must be alike: the program, the weights, and
  // where they draw one image together the kernels, the architecture and the type. Throws DeviceError, on
  // every rank the same, where something differs.
  std::unique_ptr<Group> load(const LoadOptions& options, const Callbacks& callbacks);

  const Launch& launch() const { return launch_; }
  // As MultiPipeline::generate_each, for the requests that this rank draws: those that nobody has, and those
  // of ranks that are lost. `request` gives the same for the same number, on all ranks.
  void draw_each(const MultiPipeline::RequestAt& request, const MultiPipeline::ResultTaker& take,
                 const std::function<GenerateResult(const GenerateRequest&)>& draw);

 private:
  std::string facts(const LoadOptions& options, const Group& group) const;
  void compare(const std::string& own) const;
  void draw_one(Claims& claims, size_t index, const GenerateRequest& request,
                const MultiPipeline::ResultTaker& take,
                const std::function<GenerateResult(const GenerateRequest&)>& draw);
  void give_up(int rank, const std::string& reason);
  void check_expelled() const;

  Launch launch_;
  RankDevice device_;
  RankPatience patience_;
  std::shared_ptr<RankHub> hub_;
};

}  // namespace rocm_sd
