// Group: the devices that draw one image together, and their pipelines. A group of one is a device alone. The
// ranks of a group are threads of this process, or this process is one of them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pipeline/load.hpp"
#include "runtime/device.hpp"
#include "scaling/rank_hub.hpp"
#include "scaling/rank_trace.hpp"
#include "scaling/split.hpp"

namespace rocm_sd {

class ExchangeGroup;

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
  // Loads this process's share of a group of processes. Every one of them makes the same calls with the same
  // requests; the results of all but rank 0 have no pictures.
  Group(const LoadOptions& options, const RankDevice& device, std::shared_ptr<RankHub> hub, int rank,
        const RankPatience& patience, const Callbacks& callbacks);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const { return name_; }  // "cuda:0+cuda:1"
  Pipeline& first() const;
  bool divides() const { return divides_; }  // one image is drawn by several ranks
  size_t ranks() const { return divides_ ? static_cast<size_t>(hub_->count()) : 1; }

  // Of the last image, of the ranks of this process.
  std::vector<RankTraffic> traffic() const;

  // A group of one, where other groups can draw in its place: a device that gives no sign of life for as long
  // as the patience says fails with DeviceError, and nobody waits for its thread. Callbacks are then called
  // on that thread.
  void watch() { watches_ = !divides_ && !processes_ && patience_.alone > 0; }

  // Of all ranks of this process, as Pipeline's; with what they send each other.
  void enable_profiling();
  std::vector<TracedRank> traced() const;

  // As Pipeline's. One call at a time.
  MemoryPlan plan(const GenerateRequest& request);
  GenerateResult generate(const GenerateRequest& request, const Callbacks& callbacks);

 private:
  struct Member;
  struct Call;
  // The exact image beside a displaced one: the distance goes to the result's warnings.
  void check(const GenerateRequest& request, GenerateResult& displaced);
  void add(const LoadOptions& options, const RankDevice& device, int rank, const Callbacks& callbacks);
  GenerateResult generate_together(const GenerateRequest& request, const Callbacks& callbacks);
  GenerateResult generate_watched(const GenerateRequest& request, const Callbacks& callbacks);
  // The one of rank 0, on all ranks: its seeds. Throws UsageError where the others' requests differ.
  GenerateRequest agree_about(const GenerateRequest& request) const;
  static void run(Call& call);
  void note_traffic();

  std::string name_;
  bool divides_ = false;  // one image is drawn by several ranks
  bool processes_ = false;
  bool checks_ = false;  // Split::checks
  bool watches_ = false;
  RankPatience patience_;
  std::shared_ptr<RankHub> hub_;
  std::shared_ptr<ExchangeGroup> peers_;  // null: parts of maps pass as messages
  std::vector<std::shared_ptr<Member>> members_;
  mutable std::mutex traffic_mutex_;
  std::vector<RankTraffic> traffic_;
};

}  // namespace rocm_sd
