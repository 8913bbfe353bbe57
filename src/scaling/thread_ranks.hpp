// Ranks that are threads of one process: messages in host memory, no library. A rank that fails, or gives no
// sign of life, is named to the others, who wait for nobody then.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/ranks.hpp"

namespace rocm_sd {

// How long a rank may be silent before the others give it up, in seconds; 0: for ever.
struct RankPatience {
  double first = 120;  // until it has sent something in this attempt: plans, kernels and weights come before
  double later = 10;
};

// What the ranks of a group share.
class RankHub {
 public:
  // names: of the ranks, for messages.
  RankHub(std::vector<std::string> names, RankPatience patience);

  int count() const { return static_cast<int>(names_.size()); }
  const std::string& name(int rank) const { return names_[static_cast<size_t>(rank)]; }

  // Before a call of all ranks: forgets the failure and the messages of the last one.
  void reset();
  // A sign of life.
  void beat(int rank) { beats_[static_cast<size_t>(rank)] = now(); }
  // Whether the rank has been silent for longer than its patience.
  bool silent(int rank) const;
  bool cancelled() const;  // rather than failed
  // Wakes everybody. The first failure counts.
  void fail(int rank, const std::string& reason, bool cancelled = false);
  bool failed() const { return failed_; }
  // The rank that failed first; nothing where none did.
  std::optional<int> failed_rank() const;
  std::string failure() const;  // "rank 1 (cuda:1): the reason"

  void begin(int rank);
  void send(int from, int to, const void* data, size_t bytes);
  void receive(int from, int to, void* data, size_t bytes);

 private:
  struct Message {
    uint64_t attempt;
    std::vector<char> bytes;
  };
  std::deque<Message>& box(int from, int to);
  double limit(int rank) const;    // with mutex_ held
  bool is_silent(int rank) const;  // the same
  void throw_failure() const;      // with mutex_ held, where failed_
  static double now();             // seconds

  const std::vector<std::string> names_;
  const RankPatience patience_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<Message>> boxes_;  // [from][to]
  std::vector<uint64_t> attempts_;
  std::vector<char> has_sent_;  // in this attempt
  std::vector<std::atomic<double>> beats_;
  std::atomic<bool> failed_ = false;
  int failed_rank_ = 0;
  std::string failure_;
  bool cancelled_ = false;
};

// One rank's view of a hub, which must outlive it.
class ThreadRanks final : public Ranks {
 public:
  ThreadRanks(RankHub& hub, int rank, Division division = Division::kConditions)
      : hub_(hub), rank_(rank), division_(division) {}
  int rank() const override { return rank_; }
  int count() const override { return hub_.count(); }
  Division division() const override { return division_; }
  void begin() override { hub_.begin(rank_); }
  void send(int to, const void* data, size_t bytes) override { hub_.send(rank_, to, data, bytes); }
  void receive(int from, void* data, size_t bytes) override { hub_.receive(from, rank_, data, bytes); }

 private:
  RankHub& hub_;
  const int rank_;
  const Division division_;
};

}  // namespace rocm_sd
