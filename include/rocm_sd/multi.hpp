// Several devices behind one call: images divided over them, or one image drawn by pairs of them.
//
//   auto pipeline = rocm_sd::MultiPipeline::load({.model = "sdxl", .devices = "cuda:0,cuda:1"});
//   pipeline.generate_each(
//       [&](size_t i) { return i < requests.size() ? std::optional(requests[i]) : std::nullopt; },
//       [&](size_t i, rocm_sd::GenerateResult result) { save(i, result); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rocm_sd/pipeline.hpp"

namespace rocm_sd {

// What a rank passed to the others while the last image was drawn, by messages of the host and by stores of
// kernels. What NCCL or RCCL passes is not counted.
struct RankTraffic {
  uint64_t messages = 0, bytes = 0;  // that it sent
  uint64_t received_bytes = 0;
  // Spent sending, and receiving or waiting for what had not come yet, on the host or by a kernel. Copies
  // between a GPU and the host, and between GPUs, are not in it.
  double send_seconds = 0, receive_seconds = 0;
};

// One of those who draw: a device, or with LoadOptions::split "guidance" a pair.
struct DrawerInfo {
  std::string devices;    // "cuda:0", "cuda:0+cuda:1"
  ModelInfo model;        // as its first device has it
  int64_t requests = 0;   // that it has drawn
  std::string taken_out;  // why it draws no more; empty: it does
  // Of the last image, by rank; of processes this one's alone. Empty of a device that draws by itself.
  std::vector<RankTraffic> traffic;
};

struct DevicePlan {
  std::string devices;  // as DrawerInfo::devices; of a pair each has this plan
  MemoryPlan plan;
};

// A model on each of LoadOptions::devices, or on LoadOptions::device alone. Every device has weights of its
// own; the files are read from the disk once, as far as the host's memory holds them for the others.
// An image has the bytes that the device that drew it makes of it alone, with the same seed.
//
// Functions may be called from several threads at once: as many requests are drawn at the same time as there
// are drawers, in the order of the calls, and the others wait. A drawer whose device fails (DeviceError) is
// taken out and its request goes to the next free one. Every function throws Error subclasses only.
//
// With LoadOptions::devices "ranks" this process is one of those that a launcher has started, which all make
// the same calls: of one image the results of all ranks but 0 have no pictures; of many, generate() draws its
// own and generate_each() those that no other rank has, each once.
class MultiPipeline {
 public:
  // callbacks: of the first device. Throws what Pipeline::load throws, UsageError for lists that cannot be,
  // FormatError where a file changed while the devices loaded it.
  static MultiPipeline load(const LoadOptions& options, const Callbacks& callbacks = {});
  ~MultiPipeline();
  MultiPipeline(MultiPipeline&&) noexcept;
  MultiPipeline& operator=(MultiPipeline&&) noexcept;

  const ModelInfo& info() const;            // of the first device
  std::vector<DrawerInfo> drawers() const;  // in the order of the list
  GenerateRequest default_request() const;

  // As Pipeline's; waits for a free drawer. GenerateResult::device and Progress::device name it where there
  // are several devices. Callbacks are called on the calling thread, with several devices on another one.
  // Throws DeviceError where no drawer is left, with the reason of each.
  GenerateResult generate(const GenerateRequest& request, const Callbacks& callbacks = {});
  // What the request takes on a free drawer, and on each of them.
  MemoryPlan plan(const GenerateRequest& request);
  std::vector<DevicePlan> plans(const GenerateRequest& request);

  // Draws request(0), request(1), ... until there is none, each by a free drawer, and hands the results over
  // in this order, on the calling thread, while later ones are drawn. `request` and the callbacks are called
  // by one thread at a time. What a request throws is thrown after the results of those before it.
  using RequestAt = std::function<std::optional<GenerateRequest>(size_t index)>;
  using ResultTaker = std::function<void(size_t index, GenerateResult result)>;
  void generate_each(const RequestAt& request, const ResultTaker& take, const Callbacks& callbacks = {});

  // Of every device; the table is the first one's. The trace of several has a process for each, and what they
  // sent each other.
  void enable_profiling();
  std::string profile_table() const;
  void write_profile_trace(const std::string& path) const;

 private:
  struct State;
  explicit MultiPipeline(std::unique_ptr<State> state);
  friend class MultiLoader;
  std::unique_ptr<State> state_;
};

}  // namespace rocm_sd
