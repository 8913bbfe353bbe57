// RankHub: what the ranks of a group share: messages, signs of life, the first failure, and who draws which
// request. Ranks are threads or processes (shared_hub.hpp), or processes of several machines (mpi_hub.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rocm_sd/multi.hpp"
#include "runtime/ranks.hpp"
#include "scaling/claims.hpp"
#include "scaling/rank_trace.hpp"

namespace rocm_sd {

// How long a rank may be silent before the others give it up, in seconds; 0: for ever.
struct RankPatience {
  double first = 120;  // until it has sent something in this attempt: plans, kernels and weights come before
  double later = 10;
  // Of a device that draws an image of its own beside others: nobody waits within its steps, and a slow card
  // may take long over one of a large image.
  double alone = 120;
};

// A rank that fails, or gives no sign of life, is named to the others, who wait for nobody then. Every
// function is called by the rank that its first argument names, but for the questions.
class RankHub {
 public:
  virtual ~RankHub() = default;

  virtual int count() const = 0;
  virtual std::string name(int rank) const = 0;
  virtual std::string way() const = 0;  // that messages take: "shared memory"

  // Before a call of all ranks. Ranks of one process forget the failure and the messages of the last one;
  // those of several processes do not, for whoever failed has ended.
  virtual void begin_call(int rank) = 0;
  // After it: an idle rank is not silent.
  virtual void end_call(int rank) = 0;
  // A sign of life.
  virtual void beat(int rank) = 0;
  // Whether the rank has been silent for longer than its patience.
  virtual bool silent(int rank) const = 0;
  // Why a rank can be waited for no longer; empty: it can.
  virtual std::string why_lost(int rank) const = 0;

  // Wakes everybody. The first failure counts. reporter: who found that the rank has failed, perhaps itself.
  virtual void fail(int reporter, int rank, const std::string& reason, bool cancelled = false) = 0;
  virtual bool failed() const = 0;
  virtual bool cancelled() const = 0;  // rather than failed
  // The rank that failed first; nothing where none did.
  virtual std::optional<int> failed_rank() const = 0;
  virtual std::string failure() const = 0;  // "rank 1 (cuda:1): the reason"

  // Gives a rank up without ending the others' work: it finds out when it is alive again.
  virtual void expel(int rank) = 0;
  virtual bool expelled(int rank) const = 0;
  // Of processes: who draws which request, as this rank sees it.
  virtual std::unique_ptr<Claims> claims(int rank) = 0;

  // As Ranks'.
  virtual void begin(int rank) = 0;
  virtual void send(int from, int to, const void* data, size_t bytes, uint32_t channel = 0) = 0;
  virtual void receive(int from, int to, void* data, size_t bytes, uint32_t channel = 0) = 0;
  virtual void expect(int from, int to) = 0;
};

// How a group divides an image.
struct GroupDivision {
  Division what = Division::kConditions;
  std::optional<int> exact_calls = std::nullopt;  // Ranks::exact_calls
};

// One rank's view of a hub, which must outlive it.
class HubRanks final : public Ranks {
 public:
  HubRanks(RankHub& hub, int rank, const GroupDivision& division = {})
      : hub_(hub), rank_(rank), division_(division) {}
  int rank() const override { return rank_; }
  int count() const override { return hub_.count(); }
  Division division() const override { return division_.what; }
  std::optional<int> exact_calls() const override { return exactly_ ? std::nullopt : division_.exact_calls; }
  bool displaces() const override { return division_.exact_calls.has_value(); }
  // Whether all calls are exact from the next image on.
  void draw_exactly(bool exactly) { exactly_ = exactly; }
  void begin() override { hub_.begin(rank_); }
  void send(int to, const void* data, size_t bytes, uint32_t channel = 0) override;
  void receive(int from, void* data, size_t bytes, uint32_t channel = 0) override;

  void expect(int from) override { hub_.expect(from, rank_); }
  void give_up(int rank, const std::string& reason) { hub_.fail(rank_, rank, reason); }

  PeerWindows* windows() override { return windows_; }
  // null: none. They must outlive what asks for them.
  void use_windows(PeerWindows* windows) { windows_ = windows; }

  // What passed since the last forget_traffic(). To be asked while nobody sends or receives.
  const RankTraffic& traffic() const { return traffic_; }
  void forget_traffic() { traffic_ = {}; }
  // Every later message is kept for a trace.
  void keep_messages() { keeps_ = true; }
  const std::vector<MessageEvent>& messages() const { return messages_; }

 private:
  RankHub& hub_;
  const int rank_;
  const GroupDivision division_;
  bool exactly_ = false;
  PeerWindows* windows_ = nullptr;
  RankTraffic traffic_;
  bool keeps_ = false;
  std::vector<MessageEvent> messages_;
};

}  // namespace rocm_sd
