#include "scaling/exchange_group.hpp"

#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "base/log.hpp"
#include "scaling/library_group.hpp"
#include "scaling/peer_group.hpp"

namespace rocm_sd {

const char* exchange_way_name(ExchangeWay way) {
  switch (way) {
    case ExchangeWay::kMessages: return "host";
    case ExchangeWay::kMapped: return "mapped";
    case ExchangeWay::kPeer: return "peer";
    case ExchangeWay::kLibrary: return "nccl";
  }
  return "";
}

std::optional<ExchangeWay> asked_exchange_way() {
  const char* word = std::getenv("ROCM_SD_EXCHANGE");
  if (!word || !*word) return std::nullopt;
  for (const ExchangeWay way :
       {ExchangeWay::kMessages, ExchangeWay::kMapped, ExchangeWay::kPeer, ExchangeWay::kLibrary})
    if (std::string_view(word) == exchange_way_name(way)) return way;
  if (std::string_view(word) == "rccl") return ExchangeWay::kLibrary;
  throw UsageError(
      concat("ROCM_SD_EXCHANGE: expected host, mapped, peer, nccl or rccl, is \"", printable(word), "\""));
}

std::shared_ptr<ExchangeGroup> make_exchange_group(const std::vector<std::string>& names,
                                                   const std::vector<Device*>& devices,
                                                   const RankPatience& patience,
                                                   const std::shared_ptr<RankHub>& hub) {
  const std::optional<ExchangeWay> asked = asked_exchange_way();
  if (asked == ExchangeWay::kMessages) return nullptr;
  if (asked != ExchangeWay::kLibrary) return PeerGroup::make(names, devices, patience, asked);
  std::vector<LibraryRank> ranks;
  for (size_t i = 0; i < devices.size(); ++i) ranks.push_back({static_cast<int>(i), names[i], devices[i]});
  return LibraryGroup::make(ranks, patience, hub);
}

std::shared_ptr<ExchangeGroup> make_exchange_group(const std::string& name, Device& device,
                                                   const RankPatience& patience,
                                                   const std::shared_ptr<RankHub>& hub, int rank) {
  const std::optional<ExchangeWay> asked = asked_exchange_way();
  if (!asked || *asked == ExchangeWay::kMessages) return nullptr;
  require<UsageError>(*asked == ExchangeWay::kLibrary, "ROCM_SD_EXCHANGE=", exchange_way_name(*asked),
                      ": expected host or nccl between processes; the windows of peer and mapped are of one "
                      "process");
  return LibraryGroup::make({{rank, name, &device}}, patience, hub);
}

}  // namespace rocm_sd
