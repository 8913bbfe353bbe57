// ExchangeGroup: how devices that draw one image exchange parts of maps past the host's messages. The ways:
// kernels that store into the other's window (peer_group.hpp), or NCCL and RCCL (library_group.hpp).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/peer_windows.hpp"
#include "scaling/rank_hub.hpp"

namespace rocm_sd {

// kMessages: of the host (Ranks::send). kMapped, kPeer: stores of kernels into windows in the host's memory,
// or in the other GPU's. kLibrary: NCCL on CUDA, RCCL on HIP.
enum class ExchangeWay { kMessages, kMapped, kPeer, kLibrary };
const char* exchange_way_name(ExchangeWay way);  // "host", "mapped", "peer", "nccl"

class ExchangeGroup {
 public:
  virtual ~ExchangeGroup() = default;

  // The rank's view; ranks must outlive it, and the group.
  virtual std::unique_ptr<PeerWindows> windows(HubRanks& ranks) = 0;
  // Kernels wait no longer: a rank has failed, or begins anew.
  virtual void stop() = 0;
  // Before a call of all ranks, while none is at work; and after it. Throws DeviceError where nothing can
  // pass any more.
  virtual void begin_call() = 0;
  virtual void end_call(bool /*hangs*/) {}  // hangs: a rank has not come back
};

// Which ROCM_SD_EXCHANGE asks for (host, mapped, peer, nccl or rccl); nothing where it is not set. Throws
// UsageError for another word.
std::optional<ExchangeWay> asked_exchange_way();

// Of the devices of one process, whose ranks are threads: the way that is asked for, else the best of peer
// and mapped that its self-test finds right. A line of the log says which, and why no better. Null: messages.
// Throws UsageError for a way that does not work here.
std::shared_ptr<ExchangeGroup> make_exchange_group(const std::vector<std::string>& names,
                                                   const std::vector<Device*>& devices,
                                                   const RankPatience& patience,
                                                   const std::shared_ptr<RankHub>& hub);

// Of processes, of which this one is `rank`: the library where it is asked for, else null. All of them call
// it.
std::shared_ptr<ExchangeGroup> make_exchange_group(const std::string& name, Device& device,
                                                   const RankPatience& patience,
                                                   const std::shared_ptr<RankHub>& hub, int rank);

}  // namespace rocm_sd
