// Group: the devices that draw one image together, and their pipelines. A group of one is a device alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipeline/load.hpp"
#include "runtime/device.hpp"
#include "scaling/thread_ranks.hpp"

namespace rocm_sd {

// A device to draw on. threads: of the CPU, for the host's device.
struct RankDevice {
  std::string name;
  Device* device = nullptr;
  int threads = 0;
};

class Group {
 public:
  // Loads a pipeline for each device, one after the other where `at_once` is false. callbacks: of the first
  // one; the others are only cancelled by them. Throws what load_pipeline() throws, and UsageError for
  // devices of a group that differ in what they compute in.
  Group(const LoadOptions& options, const std::vector<RankDevice>& devices, const RankPatience& patience,
        const Callbacks& callbacks);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const { return name_; }  // "cuda:0+cuda:1"
  Pipeline& first() const;
  size_t ranks() const { return members_.size(); }

  // As Pipeline's. One call at a time.
  MemoryPlan plan(const GenerateRequest& request);
  GenerateResult generate(const GenerateRequest& request, const Callbacks& callbacks);

 private:
  struct Member;
  struct Call;
  GenerateResult generate_together(const GenerateRequest& request, const Callbacks& callbacks);
  static void run(Call& call);

  std::string name_;
  std::shared_ptr<RankHub> hub_;
  std::vector<std::shared_ptr<Member>> members_;
};

}  // namespace rocm_sd
