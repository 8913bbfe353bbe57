#include "doctor/diagnose.hpp"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/gpu_family.hpp"
#include "runtime/kernel_archive.hpp"

namespace rocm_sd::doctor {
namespace {

using Findings = std::vector<Finding>;

constexpr double kGiB = 1 << 30;

bool has_amd(const Machine& machine) {
  return std::any_of(machine.cards.begin(), machine.cards.end(),
                     [](const Card& c) { return c.vendor == kAmd; });
}

const DeviceFile* file(const Machine& machine, std::string_view path) {
  for (const DeviceFile& found : machine.files)
    if (found.path == path) return &found;
  return nullptr;
}

std::string variable(const Machine& machine, const std::string& name) {
  const auto it = machine.environment.find(name);
  return it == machine.environment.end() ? std::string() : it->second;
}

// A card without its driver, and the files through which a program reaches it.
void check_drivers(const Examination& e, Findings& out) {
  const Machine& m = e.machine;
  for (const Card& card : m.cards) {
    const bool amd = card.vendor == kAmd;
    const char* driver = amd ? "amdgpu" : "nvidia";
    if (card.driver == driver) continue;
    out.push_back(
        {Severity::kProblem, card.address,
         concat(amd ? "this AMD" : "this NVIDIA", " GPU is bound to ",
                card.driver.empty() ? "no driver" : "the driver " + card.driver, ", not to ", driver),
         "the GPU cannot be used",
         card.driver == "vfio-pci" ? "it is given to a virtual machine; bind it to its driver again"
         : amd ? "sudo modprobe amdgpu; if that fails, install the kernel's extra modules or amdgpu-dkms"
               : "install NVIDIA's driver and restart"});
  }
  if (!has_amd(m) || m.wsl) return;
  const DeviceFile* kfd = file(m, "/dev/kfd");
  if (!kfd && m.container)
    out.push_back({Severity::kProblem, "/dev/kfd", "the container has no /dev/kfd", "AMD GPUs cannot be used",
                   "start the container with --device=/dev/kfd --device=/dev/dri --group-add video "
                   "--group-add render"});
  else if (!kfd && m.amdgpu_loaded)
    out.push_back({Severity::kProblem, "/dev/kfd", "amdgpu is loaded, but /dev/kfd is missing",
                   "AMD GPUs cannot be used", "use a kernel with CONFIG_HSA_AMD, or install amdgpu-dkms"});
  for (const DeviceFile& device : m.files) {
    const bool needed = device.path == "/dev/kfd" || device.path.starts_with("/dev/dri/renderD");
    if (needed && !device.accessible)
      out.push_back({Severity::kProblem, device.path, "this user may not read and write " + device.path,
                     "AMD GPUs cannot be used",
                     "sudo usermod -aG " + device.group + " $USER, then log in again"});
  }
}

void check_runtime(const Examination& e, Findings& out) {
  const Machine& m = e.machine;
  const auto usable = [&](std::string_view product) {
    return std::any_of(e.libraries.begin(), e.libraries.end(),
                       [&](const Library& l) { return l.product == product && l.usable(); });
  };
  if (has_amd(m) && !usable("HIP runtime"))
    out.push_back(
        {Severity::kProblem, "libamdhip64", "the HIP runtime is not installed or does not load",
         "AMD GPUs cannot be used; pictures are made on the CPU",
         "install ROCm's hip-runtime-amd, or Debian's libamdhip64-5 or newer; a copy elsewhere is found "
         "through LD_LIBRARY_PATH"});
  if (m.wsl && file(m, "/dev/dxg") && !file(m, "/dev/kfd"))
    out.push_back({Severity::kWarning, "WSL",
                   "this is Windows' subsystem for Linux: the GPU is reached through /dev/dxg",
                   "few AMD GPUs are supported there, and there is no peer access and no rocm-smi",
                   "install AMD's ROCm for WSL, or run Linux itself"});
}

// Targets of the cards without a kernel archive.
void check_kernels(const Examination& e, Findings& out) {
  std::set<std::string> missing;
  for (const Card& card : e.machine.cards)
    if (!card.arch.empty() && std::find(e.targets.begin(), e.targets.end(), card.arch) == e.targets.end())
      missing.insert(card.arch);
  for (const std::string& arch : missing) {
    const bool known = gpu_family(arch).has_value();
    std::string there;
    for (const std::string& target : e.targets) there += (there.empty() ? "" : ", ") + target;
    out.push_back(
        {Severity::kProblem, arch,
         concat("no kernels were built for ", arch, "; there are those for ", there.empty() ? "none" : there),
         "the GPU is not used; pictures are made on the CPU",
         known ? "build with -DROCM_SD_ARCHS=" + arch
               : concat("the kernels do not support ", arch, "; INSTALL.md lists the targets")});
  }
}

// HIP_VISIBLE_DEVICES and its kin hide GPUs; HSA_OVERRIDE_GFX_VERSION makes one pass for another.
void check_environment(const Examination& e, Findings& out) {
  const Machine& m = e.machine;
  if (const std::string value = variable(m, "HSA_OVERRIDE_GFX_VERSION"); !value.empty()) {
    const std::string claimed = gfx_name_of_override(value);
    const bool native = !claimed.empty() && std::all_of(m.cards.begin(), m.cards.end(), [&](const Card& c) {
      return c.arch.empty() || c.arch == claimed;
    });
    out.push_back(
        {native ? Severity::kNote : Severity::kWarning, "HSA_OVERRIDE_GFX_VERSION",
         claimed.empty() ? concat("\"", printable(value), "\" is not a version such as 11.0.0")
         : native        ? concat("it names ", claimed, ", which the GPU is anyway")
                         : concat("it makes every AMD GPU pass for ", claimed),
         native ? "nothing"
                : "code of the wrong architecture is loaded: slow, wrong or \"invalid device function\"",
         "unset HSA_OVERRIDE_GFX_VERSION"});
  }
  const size_t amd = static_cast<size_t>(
      std::count_if(m.cards.begin(), m.cards.end(), [](const Card& c) { return c.vendor == kAmd; }));
  const size_t nvidia = m.cards.size() - amd;
  for (const auto& [name, count] :
       {std::pair{"HIP_VISIBLE_DEVICES", amd}, std::pair{"ROCR_VISIBLE_DEVICES", amd},
        std::pair{"GPU_DEVICE_ORDINAL", amd}, std::pair{"CUDA_VISIBLE_DEVICES", nvidia}}) {
    if (!m.environment.contains(name) || count == 0) continue;
    const std::string value = variable(m, name);
    unsigned index = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), index);
    const bool hides_all = value.empty() || value.front() == '-' ||
                           (error == std::errc() && index >= count && (*end == '\0' || *end == ','));
    out.push_back({hides_all ? Severity::kProblem : Severity::kNote, name,
                   concat(name, "=", value.empty() ? "\"\"" : printable(value),
                          hides_all ? " hides every GPU" : " chooses among the GPUs"),
                   hides_all ? "no GPU can be used"
                             : "GPUs that it leaves out are not seen, and the others are numbered anew",
                   concat("unset ", name)});
  }
  for (const auto& [name, value] : m.environment) {
    if (name.starts_with("MIOPEN_"))
      out.push_back({Severity::kNote, name, concat(name, "=", printable(value), " is set for MIOpen"),
                     "nothing here: these kernels search nothing; PyTorch's convolutions change with it",
                     "unset it unless PyTorch needs it"});
    if ((name == "PYTORCH_HIP_ALLOC_CONF" || name == "PYTORCH_CUDA_ALLOC_CONF") &&
        value.find("expandable_segments:True") != std::string::npos)
      out.push_back({Severity::kNote, name, "PyTorch's allocator may keep memory that it does not use",
                     "less VRAM is left for a rocm-sd that runs beside it",
                     "end the other program, or give --vram-budget"});
    if (name == "AMD_SERIALIZE_KERNEL" || name == "HIP_LAUNCH_BLOCKING" || name == "AMD_LOG_LEVEL")
      if (value != "0")
        out.push_back({Severity::kWarning, name, concat(name, "=", printable(value), " is a debugging aid"),
                       "every launch waits or is logged: several times slower", concat("unset ", name)});
  }
}

void check_memory(const Examination& e, Findings& out) {
  const Machine& m = e.machine;
  for (const Card& card : m.cards) {
    const double total = static_cast<double>(card.vram) / kGiB,
                 used = static_cast<double>(card.vram_used) / kGiB;
    if (card.vram != 0 && card.vram_used > card.vram / 2)
      out.push_back({Severity::kWarning, card.address,
                     fmt::format("{:.1f} of {:.1f} GiB of VRAM are taken by other programs", used, total),
                     "the VAE is decoded in bands and weights may be streamed from the host",
                     "end what holds them (a browser, a game, another server)"});
    // An APU's VRAM is a cut of the host's memory and needs no window.
    if (card.vram_visible != 0 && card.vram_visible < card.vram / 2)
      out.push_back({Severity::kWarning, card.address,
                     fmt::format("the host sees {:.2f} of {:.1f} GiB of VRAM: resizable BAR is off",
                                 static_cast<double>(card.vram_visible) / kGiB, total),
                     "no peer access between GPUs, slower copies of weights",
                     "switch on Above 4G Decoding and Resizable BAR (Smart Access Memory) in the firmware"});
    if (card.link_width != 0 && card.link_width < card.link_width_max)
      out.push_back({Severity::kWarning, card.address,
                     fmt::format("the PCIe link runs {} of {} lanes", card.link_width, card.link_width_max),
                     fmt::format("loading and --offload take {:.0f} times as long",
                                 static_cast<double>(card.link_width_max) / card.link_width),
                     "use a slot with all lanes; check that the card sits firmly"});
  }
  const uint64_t limit = m.memory_limit != 0 ? std::min(m.memory_limit, m.memory) : m.memory;
  if (limit != 0 && static_cast<double>(limit) < 7.5 * kGiB)
    out.push_back({Severity::kWarning, "memory",
                   fmt::format("{:.1f} GiB of memory", static_cast<double>(limit) / kGiB),
                   "SD 1.5 in f32 needs 5 GB on the CPU, SDXL 15 GB; --offload keeps weights here",
                   "--dtype bf16 halves it"});
}

void check_several(const Examination& e, Findings& out) {
  const Machine& m = e.machine;
  std::vector<const Card*> gpus;
  for (const Card& card : m.cards)
    if (card.node >= 0) gpus.push_back(&card);
  if (gpus.size() < 2) return;
  for (size_t i = 0; i < gpus.size(); ++i)
    for (size_t j = i + 1; j < gpus.size(); ++j) {
      const bool linked = std::any_of(m.links.begin(), m.links.end(), [&](const Link& l) {
        return l.from == gpus[i]->node && l.to == gpus[j]->node;
      });
      if (!linked)
        out.push_back({Severity::kWarning, gpus[i]->address + " - " + gpus[j]->address,
                       "the kernel lists no peer link between these GPUs",
                       "what they exchange goes through the host's memory",
                       "switch on resizable BAR; boot with iommu=pt; put both below one root complex"});
    }
  const bool mixed =
      std::any_of(gpus.begin(), gpus.end(), [&](const Card* c) { return c->arch != gpus[0]->arch; });
  if (mixed)
    out.push_back({Severity::kNote, "GPUs",
                   "the AMD GPUs differ in architecture (a processor's own GPU is one)",
                   "--device auto takes the first with kernels, which may be the slower",
                   "choose with --device hip:N (rocm-sd devices lists them) or HIP_VISIBLE_DEVICES"});
}

// The last check: it looks at what the others found.
void check_without_gpu(const Examination& e, Findings& out) {
  std::string reasons;
  for (const DeviceListing& d : e.devices) {
    if (d.name == "cpu" || d.name.starts_with("emu:")) continue;
    if (d.usable) return;
    reasons += concat(reasons.empty() ? "" : "; ", d.name, ": ", d.detail);
  }
  if (e.machine.cards.empty())
    out.push_back({Severity::kNote, "GPU", "there is no AMD or NVIDIA GPU on the PCI bus",
                   "pictures are made on the CPU", "none: the CPU does, and the demo model is quick on it"});
  else if (std::none_of(out.begin(), out.end(),
                        [](const Finding& f) { return f.severity == Severity::kProblem; }))
    out.push_back({Severity::kProblem, "GPU", concat("there is a GPU that no runtime offers: ", reasons),
                   "pictures are made on the CPU",
                   "see what rocminfo or nvidia-smi says; the kernel's log (sudo dmesg) may name the cause"});
}

}  // namespace

Examination examine(const std::filesystem::path& root) {
  return {.machine = read_machine(root, current_environment(), current_identity()),
          .devices = list_devices(),
          .libraries = find_libraries(),
          .targets = archived_targets()};
}

std::vector<Finding> diagnose(const Examination& examination) {
  Findings findings;
  for (const auto check : {check_drivers, check_runtime, check_kernels, check_environment, check_memory,
                           check_several, check_without_gpu})
    check(examination, findings);
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return findings;
}

}  // namespace rocm_sd::doctor
