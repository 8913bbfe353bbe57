// The ways between the GPUs of a machine: what each pair has, what stands in its way, what that costs and how
// it is mended.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "doctor/diagnose.hpp"
#include "doctor/nvidia_links.hpp"
#include "doctor/pci_place.hpp"

namespace rocm_sd::doctor {

// What the system as a whole does to peer access.
struct PeerSettings {
  bool iommu = false;                // one is at work (/sys/class/iommu)
  std::string iommu_options;         // of the kernel's command line: "amd_iommu=on iommu=pt"
  std::optional<bool> amdgpu_peers;  // amdgpu's parameter pcie_p2p; nothing: not told
  std::optional<bool> kernel_peers;  // the kernel was built with CONFIG_HSA_AMD_P2P; nothing: not told
};

// All that the checks look at; a test fills it by hand.
struct LinkExamination {
  Machine machine;
  std::vector<PciPlace> places;  // of machine.cards, in their order
  std::vector<NvidiaLink> nvidia;
  PeerSettings settings;
  bool rccl = false;  // the library is there
};
LinkExamination examine_links(const Examination& examination, const std::filesystem::path& root = "/");

enum class Meeting { kUnknown, kSwitch, kHostBridge, kSocket, kSockets };

// The way from one card to another, as the driver and the bus tell of it.
struct CardPair {
  size_t from = 0, to = 0;   // indices of the cards, from < to
  std::string kind;          // "xGMI", "NVLink x18", "PCIe 4.0 x16"; "not told"
  std::optional<bool> peer;  // peer access; nothing: nobody tells
  std::string reason;        // why there is none, or who told
  Meeting meeting = Meeting::kUnknown;
  std::string port;  // where both meet, if at a port of a switch
};
std::vector<CardPair> card_pairs(const LinkExamination& examination);
std::string meeting_text(const CardPair& pair);  // "at the switch 0000:02:00.0", "in the processor"

// Every finding, the gravest first; none where there are fewer than two GPUs.
std::vector<Finding> diagnose_links(const LinkExamination& examination);

// {"cards", "pairs", "iommu", ..., "findings"}
nlohmann::ordered_json links_json(const LinkExamination& examination, const std::vector<Finding>& findings);
std::string links_text(const LinkExamination& examination, const std::vector<Finding>& findings);

}  // namespace rocm_sd::doctor
