// PeerWindows: one rank's view of what GPUs that draw one image exchange parts of maps through: memory, where
// kernels of one store into the window of another (composable_kernels/fused/exchange.hpp has the protocol,
// kernels/exchange the launches), or a library. src/scaling makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rocm_sd {

struct ExchangeControl;
struct ExchangeCounts;

// To or from the rank of that place: bytes of device memory.
struct LibraryMessage {
  int rank = 0;
  char* data = nullptr;
  size_t bytes = 0;
};

// Ranks are named by their places in the whole group (Ranks::place()), sets of them by a bit for each. What
// throws does so as Ranks' functions do: where another rank has failed or begun anew.
class PeerWindows {
 public:
  virtual ~PeerWindows() = default;

  // Of this rank, in its device's memory; stays where it is. Null by a library.
  virtual ExchangeControl* control() const = 0;

  // Whether another rank is on this one's device.
  virtual bool shares_device() const { return false; }

  // Messages of so many bytes will pass, from the next meet() on.
  virtual void need(size_t message_bytes) = 0;
  // The messages of a call that are kept until the next one will be so many bytes for a rank; likewise.
  virtual void need_kept(size_t bytes) = 0;
  virtual size_t kept_bytes() const = 0;  // that there is room for
  // Another number after the windows were made anew, of all ranks at once: what was kept is lost then.
  virtual uint64_t generation() const = 0;
  // Of this rank's memory, for messages as need() asked.
  virtual size_t bytes() const = 0;

  // All ranks come here, before any of them starts what waits on the device for messages: a captured graph,
  // or launches without await(). So nobody's kernels wait for a rank that is not there, and whoever does not
  // come is named.
  virtual void meet() = 0;
  // Before a launch that takes the next message of these ranks: waits on the host until they have come.
  // Nothing while launches are being captured. What an eager forward does, so that no kernel waits while
  // another rank loads kernels or memory, for which some drivers wait for every kernel that runs.
  virtual void await(uint32_t ranks) = 0;
  // After a wait for the device: throws where a kernel has waited in vain, and its results are of no use.
  virtual void check() = 0;
  // After Ranks::begin(): what earlier attempts have put is forgotten.
  virtual void begin() = 0;
  // What has passed in this call of all ranks; while no kernel runs.
  virtual ExchangeCounts counts() const = 0;

  // Whether a library (NCCL, RCCL) passes messages: pass() in place of kernels. Who has met others then also
  // starts what it has met for: nobody looks between the two whether it was asked to stop.
  virtual bool by_library() const { return false; }
  // One exchange, on the device's stream, also while launches are captured: messages of a pair of ranks are
  // in the same order on both. Meets the others first, unless launches are captured.
  virtual void pass(std::span<const LibraryMessage> /*sent*/, std::span<const LibraryMessage> /*received*/) {}
};

}  // namespace rocm_sd
