// RankWindows: a rank's view of its PeerGroup.
#pragma once

#include "scaling/peer_group.hpp"

namespace rocm_sd {

class RankWindows final : public PeerWindows {
 public:
  RankWindows(PeerGroup& group, HubRanks& ranks)
      : group_(group), ranks_(ranks), own_(*group.ranks_[static_cast<size_t>(ranks.rank())]) {}

  ExchangeControl* control() const override { return own_.control; }
  bool shares_device() const override;
  void need(size_t message_bytes) override;
  void need_kept(size_t bytes) override;
  size_t kept_bytes() const override { return own_.sizes.kept; }
  uint64_t generation() const override { return grown_; }
  size_t bytes() const override;
  void meet() override;
  void await(uint32_t ranks) override;
  void check() override;
  void begin() override;
  ExchangeCounts counts() const override;

 private:
  // need: the most that anybody needs.
  void meet_all(WindowSizes& need, bool& unlike);
  void grow(const WindowSizes& sizes);

  PeerGroup& group_;
  HubRanks& ranks_;
  PeerGroup::Rank& own_;
  WindowSizes need_;
  uint64_t grown_ = 0;
};

}  // namespace rocm_sd
