#include "doctor/links.hpp"

#include <algorithm>
#include <sstream>

#include "base/error.hpp"
#include "doctor/sysfs.hpp"

namespace rocm_sd::doctor {
namespace fs = std::filesystem;
namespace {

// The words of the kernel's command line that an IOMMU listens to.
std::string iommu_options(const std::string& command_line) {
  std::istringstream words(command_line);
  std::string out;
  for (std::string word; words >> word;)
    if (word.starts_with("iommu") || word.starts_with("amd_iommu") || word.starts_with("intel_iommu"))
      out += concat(out.empty() ? "" : " ", printable(word, 64));
  return out;
}

PeerSettings read_settings(const fs::path& root, const std::string& kernel) {
  PeerSettings out;
  out.iommu = !entries(root / "sys/class/iommu").empty();
  out.iommu_options = iommu_options(read_text(root / "proc/cmdline"));
  const std::string peers = read_text(root / "sys/module/amdgpu/parameters/pcie_p2p", 8);
  if (!peers.empty()) out.amdgpu_peers = peers == "Y" || peers == "1";
  const std::string config = read_text(root / "boot" / concat("config-", kernel), 1 << 20);
  if (config.find("CONFIG_HSA_AMD=") != std::string::npos)
    out.kernel_peers = config.find("\nCONFIG_HSA_AMD_P2P=y") != std::string::npos;
  return out;
}

Meeting meeting_of(const PciPlace& one, const PciPlace& other, std::string& port) {
  if (one.root.empty() || other.root.empty()) return Meeting::kUnknown;
  if (const size_t same = common_ports(one, other); same > 0) {
    port = one.path[same - 1].address;
    return Meeting::kSwitch;
  }
  if (one.numa >= 0 && other.numa >= 0 && one.numa != other.numa) return Meeting::kSockets;
  return one.root == other.root ? Meeting::kHostBridge : Meeting::kSocket;
}

void add_kfd(const LinkExamination& e, const Card& from, const Card& to, CardPair& pair) {
  const auto found = std::find_if(e.machine.links.begin(), e.machine.links.end(),
                                  [&](const Link& l) { return l.from == from.node && l.to == to.node; });
  if (from.node < 0 || to.node < 0) {
    pair.reason = "the kernel lists not both GPUs (KFD topology)";
    return;
  }
  pair.peer = found != e.machine.links.end();
  pair.reason = *pair.peer ? "KFD topology" : "the kernel lists no peer link (KFD topology)";
  if (*pair.peer && found->type == 11) pair.kind = "xGMI";
}

void add_nvidia(const LinkExamination& e, const Card& from, const Card& to, CardPair& pair) {
  for (const NvidiaLink& link : e.nvidia) {
    if (link.from != from.address || link.to != to.address) continue;
    pair.peer = link.peer == "ok";
    pair.reason = concat("NVML: ", link.peer);
    if (link.nvlinks > 0) pair.kind = concat("NVLink x", link.nvlinks);
  }
}

}  // namespace

LinkExamination examine_links(const Examination& examination, const fs::path& root) {
  LinkExamination out{.machine = examination.machine};
  std::vector<std::string> nvidia;
  for (const Card& card : out.machine.cards) {
    out.places.push_back(read_place(root, card.address));
    if (card.vendor == kNvidia) nvidia.push_back(card.address);
  }
  if (root == "/") out.nvidia = read_nvidia_links(nvidia);
  out.settings = read_settings(root, out.machine.kernel);
  out.rccl = std::any_of(examination.libraries.begin(), examination.libraries.end(),
                         [](const Library& l) { return l.product == "RCCL" && l.usable(); });
  return out;
}

std::vector<CardPair> card_pairs(const LinkExamination& e) {
  std::vector<CardPair> out;
  const std::vector<Card>& cards = e.machine.cards;
  for (size_t i = 0; i < cards.size(); ++i)
    for (size_t j = i + 1; j < cards.size(); ++j) {
      CardPair pair{.from = i, .to = j};
      const PciLink one = e.places[i].slowest_ever(), other = e.places[j].slowest_ever();
      pair.kind = (one.bytes_per_second() <= other.bytes_per_second() ? one : other).text();
      pair.meeting = meeting_of(e.places[i], e.places[j], pair.port);
      if (cards[i].vendor != cards[j].vendor) {
        pair.peer = false;
        pair.reason = "GPUs of two vendors";
      } else if (cards[i].vendor == kAmd) {
        add_kfd(e, cards[i], cards[j], pair);
      } else {
        add_nvidia(e, cards[i], cards[j], pair);
      }
      if (pair.reason.empty()) pair.reason = "nobody tells";
      out.push_back(std::move(pair));
    }
  return out;
}

std::string meeting_text(const CardPair& pair) {
  switch (pair.meeting) {
    case Meeting::kUnknown: return "not told";
    case Meeting::kSwitch: return concat("at the port ", pair.port);
    case Meeting::kHostBridge: return "in the processor, one root complex";
    case Meeting::kSocket: return "in the processor, two root complexes";
    case Meeting::kSockets: return "across two NUMA nodes";
  }
  return "";
}

}  // namespace rocm_sd::doctor
