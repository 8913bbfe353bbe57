// An exchange of parts of tensors by way of the ranks' windows (runtime/peer_windows.hpp), which graphs
// contain like any launch: two kernels, or a library's calls between copies of the parts that are not dense.
#pragma once

#include <vector>

#include "composable_kernels/fused/exchange.hpp"
#include "kernels/exchange/exchange.hpp"
#include "runtime/ranks.hpp"

namespace rocm_sd {

// Where launches that are not a graph's wait for other ranks: on the host, or, where the ranks have just met
// (PeerWindows::meet), in the kernel.
enum class Waits { kEager, kHaveMet };

// The exchanges of one forward of displaced rows, in order: all of its messages stay in the windows until the
// next call of the forward has read them, each at a place of its own. Every rank that a message concerns
// comes to the same place, for all make the same exchanges.
class KeptCall {
 public:
  // stale: its exchanges read what the call before has sent.
  KeptCall(const Ranks& ranks, bool stale);
  bool stale() const { return stale_; }

  // The next exchange, of so many bytes to and from each rank.
  KeptMessage add(const Ranks& ranks, const std::vector<size_t>& sent, const std::vector<size_t>& received);
  // Of the kept part's half for the rank that has most.
  size_t bytes() const;

 private:
  const bool stale_;
  bool begun_ = false;
  std::vector<size_t> sent_, received_;  // so far, by rank
};

// What passes. Ranks are those of the Ranks that exchange() gets, not places in the group.
class WindowExchange {
 public:
  explicit WindowExchange(Ranks& ranks);

  // Parts of one message lie one after the other, on both sides in the order of the calls.
  void send(int to, const Tensor& part);
  void receive(int from, const Tensor& part);
  void copy(const Tensor& from, const Tensor& to) { own_.push_back({from, to}); }
  // Takes part without bytes: whoever sends to a rank also waits for it, and the other way around.
  void with(int rank) { with_ |= bit(rank); }

  // call: that the exchange is one of, whose messages are kept; null: of none.
  void run(Exec& ex, Waits waits = Waits::kEager, KeptCall* call = nullptr);

 private:
  void run_by_library(Exec& ex, PeerWindows& windows);
  void run_kept(Exec& ex, PeerWindows& windows, KeptCall& call);
  uint32_t bit(int rank) const { return uint32_t{1} << ranks_.place(rank); }

  Ranks& ranks_;
  std::vector<ExchangePart> sent_, received_;
  std::vector<OwnPart> own_;
  std::vector<size_t> sent_bytes_, received_bytes_;  // by rank
  uint32_t with_ = 0;
};

}  // namespace rocm_sd
