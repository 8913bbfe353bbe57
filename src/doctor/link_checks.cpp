// The traps between GPUs, each looked for by a function of its own.
#include <algorithm>
#include <array>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "doctor/links.hpp"

namespace rocm_sd::doctor {
namespace {

using Findings = std::vector<Finding>;

// GPUs within AMD's processors: Raven to Strix Halo.
constexpr std::array kIntegrated = {"gfx902",  "gfx90c",  "gfx1033", "gfx1035", "gfx1036", "gfx1037",
                                    "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"};

bool integrated(const Card& card) {
  return std::find(kIntegrated.begin(), kIntegrated.end(), card.arch) != kIntegrated.end();
}
bool radeon(const Card& card) {
  return card.arch.size() == 7 && card.arch.starts_with("gfx1") && !integrated(card);
}
std::string variable(const Machine& machine, const char* name) {
  const auto it = machine.environment.find(name);
  return it == machine.environment.end() ? std::string() : it->second;
}

void check_slots(const LinkExamination& e, Findings& out) {
  for (const PciPlace& place : e.places) {
    const PciLink now = place.slowest_now(), ever = place.slowest_ever(), own = place.own();
    const auto times = [](const PciLink& few, const PciLink& many) {
      return fmt::format("copies between GPUs and --offload take {:.1f} times as long",
                         many.bytes_per_second() / few.bytes_per_second());
    };
    if (ever.bytes_per_second() > 0 && ever.bytes_per_second() < own.bytes_per_second())
      out.push_back({Severity::kWarning, place.address,
                     concat("the way to this GPU is ", ever.text(), " at most (at ", ever.at,
                            "), the GPU could do ", own.text()),
                     times(ever, own), "put the GPU into a slot of the processor with all lanes"});
    if (now.width > 0 && now.width < ever.width)
      out.push_back({Severity::kWarning, place.address,
                     concat("the link at ", now.at, " runs ", now.width, " of ", ever.width, " lanes"),
                     times({now.at, now.width, ever.speed}, ever),
                     "see that the GPU and its riser sit firmly, and that no other slot shares the lanes"});
    else if (now.speed > 0 && now.speed < ever.speed)
      out.push_back({Severity::kNote, place.address,
                     concat("the link at ", now.at, " runs as ", now.text(), " now, not as ", ever.text()),
                     "none if the GPU is idle: links slow down to save energy",
                     "look again while it computes; if it stays so, replace the riser or set the slot's "
                     "generation in the firmware"});
  }
}

void check_windows(const LinkExamination& e, Findings& out) {
  for (size_t i = 0; i < e.places.size(); ++i) {
    const Card& card = e.machine.cards[i];
    const uint64_t window = card.vram_visible != 0 ? card.vram_visible : e.places[i].window_bytes;
    if (card.vram == 0 || window == 0 || integrated(card) || window >= card.vram / 2) continue;
    out.push_back(
        {Severity::kProblem, card.address,
         fmt::format("small BAR: {:.2f} of {:.1f} GiB of VRAM are visible on the bus",
                     static_cast<double>(window) / (1 << 30), static_cast<double>(card.vram) / (1 << 30)),
         "no peer access to this GPU: what it exchanges goes through the host's memory",
         "switch on Above 4G Decoding and Resizable BAR (Smart Access Memory) in the firmware"});
  }
}

void check_iommu(const LinkExamination& e, Findings& out) {
  std::string translated;
  for (const PciPlace& place : e.places)
    if (place.iommu_type.starts_with("DMA"))
      translated += concat(translated.empty() ? "" : ", ", place.address, " (", place.iommu_type, ")");
  const bool told =
      std::any_of(e.places.begin(), e.places.end(), [](const PciPlace& p) { return !p.iommu_type.empty(); });
  const std::string& options = e.settings.iommu_options;
  const bool passes = options.find("iommu=pt") != std::string::npos ||
                      options.find("iommu.passthrough=1") != std::string::npos ||
                      options.find("iommu=off") != std::string::npos;
  if (!told && e.settings.iommu && !passes) translated = "the groups' types are not told";
  if (translated.empty()) return;
  out.push_back(
      {Severity::kWarning, "IOMMU",
       concat("the IOMMU translates the GPUs' addresses: ", translated, "; the kernel's command line has ",
              options.empty() ? "no option for it" : options),
       "copies between GPUs are slower, and on some boards hang or come wrong",
       "boot with iommu=pt (amd_iommu=on iommu=pt, intel_iommu=on iommu=pt), or switch the IOMMU off "
       "in the firmware"});
}

// Ports between two GPUs and the port where they meet send what one has for the other up to the processor.
void check_acs(const LinkExamination& e, Findings& out) {
  std::set<std::string> redirecting;
  for (const CardPair& pair : card_pairs(e)) {
    if (pair.meeting != Meeting::kSwitch) continue;
    const size_t same = common_ports(e.places[pair.from], e.places[pair.to]);
    for (const PciPlace* place : {&e.places[pair.from], &e.places[pair.to]})
      for (size_t i = same; i + 1 < place->path.size(); ++i)
        if (place->path[i].acs_control.value_or(0) & (kAcsRequestRedirect | kAcsCompletionRedirect))
          redirecting.insert(place->path[i].address);
  }
  for (const std::string& port : redirecting)
    out.push_back({Severity::kWarning, port,
                   "Access Control Services (ACS) of this port send copies between GPUs of one switch up to "
                   "the processor",
                   "such copies take the longer way; with an IOMMU that translates they may hang",
                   concat("switch ACS off in the firmware, or until the next start: sudo setpci -s ", port,
                          " ECAP_ACS+0x6.w=0000")});
}

void check_driver(const LinkExamination& e, Findings& out) {
  const auto amd = std::count_if(e.machine.cards.begin(), e.machine.cards.end(),
                                 [](const Card& c) { return c.vendor == kAmd && !integrated(c); });
  if (amd < 2) return;
  const char* cost = "no peer access between AMD GPUs: what they exchange goes through the host's memory";
  if (!e.settings.amdgpu_peers.value_or(true))
    out.push_back({Severity::kProblem, "amdgpu", "the driver's parameter pcie_p2p is off", cost,
                   "remove amdgpu.pcie_p2p=0 from the kernel's command line and from /etc/modprobe.d"});
  if (!e.settings.kernel_peers.value_or(true))
    out.push_back({Severity::kProblem, concat("Linux ", e.machine.kernel),
                   "the kernel was built without CONFIG_HSA_AMD_P2P", cost,
                   "use a kernel with CONFIG_PCI_P2PDMA and CONFIG_HSA_AMD_P2P, or install amdgpu-dkms"});
  if (e.machine.wsl)
    out.push_back({Severity::kProblem, "WSL", "Windows' subsystem for Linux has no peer access", cost,
                   "run Linux itself, or a split with few messages: --split images or guidance"});
}

void check_pairs(const LinkExamination& e, Findings& out) {
  for (const CardPair& pair : card_pairs(e)) {
    const Card &from = e.machine.cards[pair.from], &to = e.machine.cards[pair.to];
    const std::string subject = concat(from.address, " - ", to.address);
    if (integrated(from) || integrated(to)) continue;
    if (pair.peer == false)
      out.push_back({Severity::kWarning, subject, concat("no peer access: ", pair.reason),
                     "what they exchange goes through the host's memory",
                     from.vendor != to.vendor
                         ? "--split images takes any GPUs"
                         : "switch on resizable BAR; boot with iommu=pt; put both below one root complex"});
    if (pair.meeting == Meeting::kSockets)
      out.push_back({Severity::kNote, subject,
                     concat("the GPUs are at two NUMA nodes, ", e.places[pair.from].numa, " and ",
                            e.places[pair.to].numa),
                     "what they exchange crosses the link between the processors",
                     "put both below one processor, or take pairs of one node for a split"});
  }
}

void check_mixture(const LinkExamination& e, Findings& out) {
  const std::vector<Card>& cards = e.machine.cards;
  const bool discrete = std::any_of(cards.begin(), cards.end(),
                                    [](const Card& c) { return c.vendor == kAmd && !integrated(c); });
  for (const Card& card : cards)
    if (integrated(card) && discrete)
      out.push_back(
          {Severity::kWarning, card.address,
           concat("the processor's own GPU (", card.arch, ") is listed beside the others"),
           "RCCL hung with gfx1036 beside a Radeon (rccl#876); --devices all takes it, and one image "
           "cannot be split over unlike GPUs",
           "switch it off in the firmware, or leave it out: HIP_VISIBLE_DEVICES, or --devices with "
           "names"});
}

void check_rccl(const LinkExamination& e, Findings& out) {
  const auto radeons = std::count_if(e.machine.cards.begin(), e.machine.cards.end(), radeon);
  const bool off = variable(e.machine, "NCCL_P2P_DISABLE") == "1";
  if (radeons >= 2 && e.rccl && !off)
    out.push_back({Severity::kNote, "RCCL",
                   "RCCL with peer access is known to hang on pairs of Radeons (ROCm/vllm#390)",
                   "none for rocm-sd, which does not need it; PyTorch and vLLM may stop without a word",
                   "for them: export NCCL_P2P_DISABLE=1"});
  if (radeons == 0 && off)
    out.push_back({Severity::kNote, "NCCL_P2P_DISABLE", "NCCL and RCCL may not use peer access",
                   "their exchanges go through the host's memory", "unset NCCL_P2P_DISABLE"});
}

}  // namespace

std::vector<Finding> diagnose_links(const LinkExamination& examination) {
  Findings findings;
  if (examination.machine.cards.size() < 2) return findings;
  for (const auto check : {check_slots, check_windows, check_iommu, check_acs, check_driver, check_pairs,
                           check_mixture, check_rccl})
    check(examination, findings);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return findings;
}

}  // namespace rocm_sd::doctor
