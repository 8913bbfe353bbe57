// RankWindows: a rank's view of its PeerGroup.
#pragma once

#include "scaling/peer_group.hpp"

namespace rocm_sd {

class RankWindows final : public PeerWindows {
 public:
  RankWindows(PeerGroup& group, HubRanks& ranks)
      : group_(group), ranks_(ranks), own_(*group.ranks_[static_cast<size_t>(ranks.rank())]) {}

  ExchangeControl* control() const override { return own_.control; }
  void need(size_t message_bytes) override;
  size_t bytes() const override;
  void meet() override;
  void await(uint32_t ranks) override;
  void check() override;
  void begin() override;
  ExchangeCounts counts() const override;

 private:
  void meet_all(uint64_t& need, bool& unlike);
  void grow(size_t slot_bytes);

  PeerGroup& group_;
  HubRanks& ranks_;
  PeerGroup::Rank& own_;
  size_t need_ = 0;
};

}  // namespace rocm_sd
