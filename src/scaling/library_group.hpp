// LibraryGroup: parts of maps pass by NCCL or RCCL, between GPUs of this process, of processes of one host,
// and of several hosts. The calls are put on each device's stream, and captured with the launches around
// them.
//
// A kernel of the library waits for the other rank for ever. So the ranks meet on the host before each
// exchange, or before the graph that has some, and do not look between the two whether they were asked to
// stop: whoever has met also calls. Where a rank fails all the same, a thread of the group's own ends the
// communicators, and with them what waits; no further image is drawn by the group.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/gpu.hpp"
#include "runtime/library_host.hpp"
#include "scaling/exchange_group.hpp"
#include "scaling/nccl_api.hpp"

namespace rocm_sd {

struct LibraryRank {
  int rank = 0;
  std::string name;
  Device* device = nullptr;
};

class LibraryGroup final : public ExchangeGroup, public std::enable_shared_from_this<LibraryGroup> {
 public:
  // own: the ranks of this process: all of the hub's, or one. Brings all ranks together and sends bytes from
  // each to each. Throws UsageError for the CPU and for devices of two drivers, DeviceError where the library
  // is not there, does not start within the ranks' patience, or passes other bytes.
  static std::shared_ptr<LibraryGroup> make(const std::vector<LibraryRank>& own, const RankPatience& patience,
                                            const std::shared_ptr<RankHub>& hub);
  ~LibraryGroup() override;
  LibraryGroup(const LibraryGroup&) = delete;
  LibraryGroup& operator=(const LibraryGroup&) = delete;

  std::unique_ptr<PeerWindows> windows(HubRanks& ranks) override;
  void stop() override {}  // the group's thread sees that a rank has failed
  void begin_call() override;
  void end_call(bool hangs) override;

  std::string way() const { return api_.version; }

 private:
  friend class LibraryWindows;
  struct Own {
    LibraryRank who;
    LibraryHost* host = nullptr;  // null: an emulated GPU, which has no stream
    nccl::Communicator communicator = nullptr;
  };

  LibraryGroup(const std::vector<LibraryRank>& own, const std::shared_ptr<RankHub>& hub);
  bool of_one_process() const { return static_cast<int>(own_.size()) == hub_->count(); }
  nccl::UniqueId agree() const;
  void connect(const nccl::UniqueId& id);
  void connect_within(double seconds);
  std::string test();
  // Puts the exchange on the rank's stream.
  void enqueue(Own& own, std::span<const LibraryMessage> sent, std::span<const LibraryMessage> received);
  void watch();
  void look_for_failures();
  void abort() noexcept;
  void make_current(const Own& own) const {
    if (own.host) own.host->library_stream();
  }

  const nccl::Api& api_;
  const std::shared_ptr<RankHub> hub_;
  std::vector<Own> own_;
  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool in_call_ = false, ending_ = false;
  std::thread watcher_;
};

}  // namespace rocm_sd
