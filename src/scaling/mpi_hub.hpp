// MpiHub: ranks that are processes of one host or of several, started by Open MPI's mpirun. Messages are
// staged through host memory; a thread of each process carries them (mpi_post.hpp), tells the others twice a
// second that its process lives, and how long its rank has been silent.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "scaling/mpi_claims.hpp"
#include "scaling/mpi_post.hpp"
#include "scaling/rank_hub.hpp"

namespace rocm_sd {

class MpiHub final : public RankHub {
 public:
  // This process is `rank` of `count`. Waits for all of them, for at most patience.first seconds (for ever
  // where that is 0). Throws DeviceError where one does not come or MPI cannot be had.
  MpiHub(int rank, int count, const std::string& name, RankPatience patience);
  // Waits for the others, which end, too, but not for those that are lost. Says first which rank failed, for
  // mpirun ends whoever is late.
  ~MpiHub() override;

  int count() const override { return static_cast<int>(peers_.size()); }
  std::string name(int rank) const override;
  std::string way() const override { return post_.version(); }

  void begin_call(int rank) override;
  void end_call(int rank) override;
  void beat(int rank) override;
  bool silent(int rank) const override;
  std::string why_lost(int rank) const override;

  void fail(int reporter, int rank, const std::string& reason, bool cancelled = false) override;
  bool failed() const override;
  bool cancelled() const override;
  std::optional<int> failed_rank() const override;
  std::string failure() const override;

  void expel(int rank) override;
  bool expelled(int rank) const override;
  std::unique_ptr<Claims> claims(int rank) override;

  void begin(int rank) override;
  void send(int from, int to, const void* data, size_t bytes, uint32_t channel = 0) override;
  void receive(int from, int to, void* data, size_t bytes, uint32_t channel = 0) override;
  void expect(int from, int to) override;

 private:
  // What is known of a rank. Times are seconds of this process's clock.
  struct Peer {
    std::string name, host;
    std::string broken;  // why MPI does not reach it
    int process = 0;
    bool visible = false;  // its process is one of this host that /proc shows
    bool joined = false, left = false, expelled = false, idle = true, has_sent = false;
    bool ready = false;  // it ends, and knows that all end
    uint64_t attempt = 0;
    double heard = 0;         // anything came from it
    double silent_until = 0;  // its rank was last seen at work
    double stopped_since = 0;
    std::deque<Parcel> inbox;
  };
  struct Failure {
    int rank = -1;
    bool cancelled = false;
    std::string reason;
  };

  void taken(int from, Parcel&& parcel);
  void tick(double seconds);
  void tell_all(const Parcel& parcel);
  void tell_own_state();
  void meet(int from, const ParcelHead& head, const std::string& text);
  void note_failure(const Failure& failure);
  // The parts about claims are in mpi_claims.cpp. The first rank that is not given up decides about them.
  int leader() const;
  void take_claim_parcel(int from, const Parcel& parcel);
  void answer(int to, const ParcelHead& question);
  bool change_claim(size_t request, uint8_t from, uint8_t to);
  void merge_table(int from, const std::vector<char>& states);
  void expel_locked(int rank);
  bool ask(size_t request, uint8_t from, uint8_t to);
  // In mpi_lost.cpp, as give_up_if_lost().
  bool hears_out() const;
  void judge_standstill();
  std::string why_lost_locked(int rank) const;
  std::string why_unreachable_locked(int rank) const;
  std::string why_useless_locked(int rank) const;
  std::string process_of(int rank) const;
  void blame(int rank, const std::string& reason);
  bool wait_for_others(std::unique_lock<std::mutex>& lock, bool Peer::* far, double until);
  bool take_message(int from, uint64_t attempt, uint32_t channel, void* data, size_t bytes);
  std::string failure_locked() const;
  void throw_failure_locked() const;
  void give_up_if_lost(int rank);
  Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }

  double limit(const Peer& peer) const { return peer.has_sent ? patience_.later : patience_.first; }

  const int own_;
  const RankPatience patience_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  mutable std::vector<Peer> peers_;
  Failure failure_;
  bool began_ = false;  // an attempt in this call
  double looked_ = 0;   // whether who is waited for is lost
  ClaimTable table_;
  uint64_t question_ = 0, answered_ = 0;
  bool answer_ = false;
  std::vector<std::pair<int, ParcelHead>> deferred_;  // questions for later
  // A rank that was stopped hears the others out before it decides about claims or who is lost: on a busy
  // machine their messages take a while.
  static constexpr double kHearOutSeconds = 3;
  double last_tick_ = 0;
  mutable double wait_until_ = 0, excused_ = 0;
  // How long this process stood still; 0: not of late, or somebody has been heard since. What the others sent
  // meanwhile is lost where they have ended.
  double stood_still_ = 0;
  bool judged_ = true;  // whether the others ended meanwhile
  MpiPost post_;        // last: its thread uses all of the above
};

}  // namespace rocm_sd
