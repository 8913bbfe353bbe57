// PeerGroup: the windows of GPUs of this process that draw one image together (runtime/peer_windows.hpp), in
// each other's memory or in the host's.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "composable_kernels/fused/exchange.hpp"
#include "runtime/gpu.hpp"
#include "runtime/peer_windows.hpp"
#include "runtime/window_host.hpp"
#include "scaling/exchange_group.hpp"

namespace rocm_sd {

// Of a window, for each rank that writes to it: of its two buffers, and of the two halves of what is kept.
struct WindowSizes {
  size_t slot = 0, kept = 0;

  WindowSizes most_of(const WindowSizes& other) const {
    return {std::max(slot, other.slot), std::max(kept, other.kept)};
  }
  friend bool operator==(const WindowSizes&, const WindowSizes&) = default;
};

class PeerGroup final : public ExchangeGroup {
 public:
  // The better of kPeer and kMapped that a self-test finds right, or the one that is asked for; a line of the
  // log says which, and why no better. Null: messages. Throws UsageError where the one does not work here.
  static std::shared_ptr<PeerGroup> make(const std::vector<std::string>& names,
                                         const std::vector<Device*>& devices, const RankPatience& patience,
                                         std::optional<ExchangeWay> asked);
  ~PeerGroup() override;
  PeerGroup(const PeerGroup&) = delete;
  PeerGroup& operator=(const PeerGroup&) = delete;

  ExchangeWay way() const { return way_; }
  std::unique_ptr<PeerWindows> windows(HubRanks& ranks) override;
  void stop() override { words_[0].store(1); }
  void begin_call() override;

 private:
  friend class RankWindows;
  struct Rank {
    std::string name;
    GpuDevice* device = nullptr;
    WindowHost* host = nullptr;
    ExchangeControl* control = nullptr;  // in the device's memory
    char* window = nullptr;              // that the others write
    size_t bytes = 0;
    WindowSizes sizes;
    bool begun = false;  // an attempt, in this call
  };
  static constexpr size_t kFlagBytes = 128;  // a flag has a line of its own
  static constexpr size_t kWordsBytes = 4096;

  PeerGroup(const std::vector<std::string>& names, const std::vector<Device*>& devices,
            const RankPatience& patience, ExchangeWay way);
  size_t count() const { return ranks_.size(); }
  // Flags of all ranks, their buffers, and of all but the own one what is kept.
  size_t window_bytes(const WindowSizes& sizes) const;
  // In turn, with all ranks between them: nobody's kernels run.
  void drop_window(size_t rank) noexcept;
  void make_window(size_t rank, const WindowSizes& sizes);
  // The control says where the windows are; no message has passed since.
  void connect(size_t rank, const ExchangeCounts& before = {});
  std::string test();  // why it does not work; empty: it does

  const ExchangeWay way_;
  const RankPatience patience_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  // Of the host's memory, which all kernels reach: whether to stop; then for each rank whom it waited for in
  // vain.
  std::atomic<uint32_t>* words_ = nullptr;
};

}  // namespace rocm_sd
