#include "emulator/tool/listing.hpp"

#include <charconv>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "emulator/tool/bound_arguments.hpp"

namespace rocm_sd::emu {

namespace {
using nlohmann::ordered_json;
constexpr uint32_t kWave32 = 1 << 10;  // of the kernel code properties
}  // namespace

ordered_json kernels_json(const CodeImage& image) {
  ordered_json out;
  out["target"] = image.target;
  out["source_lines"] = !image.lines.empty();
  out["kernels"] = ordered_json::array();
  for (const auto& [name, k] : image.kernels) {
    ordered_json entry;
    entry["name"] = printable(name, 4096);
    entry["entry"] = k.entry;
    entry["code_bytes"] = k.code_bytes;
    entry["wave"] = image.target.starts_with("gfx9") || !(k.properties & kWave32) ? 64 : 32;
    entry["vgprs"] = k.vgprs;
    entry["agprs"] = k.agprs;
    entry["sgprs"] = k.sgprs;
    entry["vgpr_spills"] = k.vgpr_spills;
    entry["sgpr_spills"] = k.sgpr_spills;
    entry["lds_bytes"] = k.lds_bytes;
    entry["scratch_bytes"] = k.scratch_bytes;
    entry["kernarg_bytes"] = k.kernarg_bytes;
    entry["max_threads"] = k.max_threads;
    entry["descriptor"] = {{"rsrc1", k.rsrc1},
                           {"rsrc2", k.rsrc2},
                           {"rsrc3", k.rsrc3},
                           {"properties", k.properties},
                           {"kernarg_preload", k.kernarg_preload}};
    entry["arguments"] = ordered_json::array();
    for (const KernelArgument& a : k.arguments)
      if (!a.hidden())
        entry["arguments"].push_back({{"name", printable(a.name)},
                                      {"kind", printable(a.kind)},
                                      {"offset", a.offset},
                                      {"size", a.size}});
    out["kernels"].push_back(std::move(entry));
  }
  return out;
}

std::string kernels_text(const CodeImage& image) {
  std::string out = concat(image.target, ", ", image.kernels.size(), " kernels, ",
                           image.lines.empty() ? "no source lines" : "source lines", '\n');
  if (!image.lines.damage().empty())
    out += concat("debug information is damaged: ", image.lines.damage(), '\n');
  const ordered_json report = kernels_json(image);
  size_t i = 0;
  for (const auto& [name, k] : image.kernels) {
    const auto& entry = report["kernels"][i++];
    out += concat(signature(k), '\n', "  wave", entry["wave"].get<int>(), ", ", k.vgprs, " VGPRs");
    if (k.agprs) out += concat(", ", k.agprs, " AGPRs");
    out += concat(", ", k.sgprs, " SGPRs, ", k.lds_bytes, " bytes of LDS, ", k.scratch_bytes,
                  " of scratch a lane, at most ", k.max_threads, " threads, entry ",
                  fmt::format("{:#x}", k.entry));
    if (k.vgpr_spills || k.sgpr_spills)
      out += concat(", spills ", k.vgpr_spills, " VGPRs and ", k.sgpr_spills, " SGPRs");
    out += '\n';
  }
  return out;
}

std::string disassembly(const CodeObject& code, const Kernel& kernel, std::span<const uint64_t> executed) {
  const Program& program = code.program();
  std::string out, source;
  for (size_t i = 0; i < program.code.size(); ++i) {
    const Inst& inst = program.code[i];
    const uint64_t offset = inst.address - code.base();
    if (inst.flags & kSecond) continue;  // the text of a dual instruction stands once
    if (kernel.code_bytes && (offset < kernel.entry || offset >= kernel.entry + kernel.code_bytes)) continue;
    if (offset == kernel.entry) out += concat(printable(kernel.name), ":\n");
    const std::string line = code.source_line(offset).value_or(source);
    if (line != source) out += concat("; ", line, '\n');
    source = line;
    const std::string& text = program.texts[inst.text];
    if (!executed.empty()) out += fmt::format("{:>12} ", executed[i]);
    out += fmt::format("{:>8x}:  {}\n", offset, text.empty() ? "(no instruction)" : text);
  }
  return out;
}

std::vector<uint64_t> find_places(const CodeObject& code, const std::string& text) {
  uint64_t number = 0;
  const auto parse = [&](size_t begin, int base) {
    const char *first = text.data() + begin, *last = text.data() + text.size();
    const auto result = std::from_chars(first, last, number, base);
    require<UsageError>(first != last && result.ec == std::errc{} && result.ptr == last, "\"",
                        printable(text),
                        "\": expected an address (0x1a40), a line (12) or a file and a line (a.hip:12)");
  };
  std::vector<uint64_t> out;
  if (text.starts_with("0x")) {
    parse(2, 16);
    require<UsageError>(code.program().at(code.base() + number) != nullptr, "there is no instruction at ",
                        printable(text));
    return {number};
  }
  const size_t colon = text.rfind(':');
  parse(colon == std::string::npos ? 0 : colon + 1, 10);
  require<UsageError>(!code.lines().empty(),
                      "the code object has no source lines (clang: -gline-tables-only); give an address");
  const std::string_view file = colon == std::string::npos ? "" : std::string_view(text).substr(0, colon);
  if (number <= 0xffffffff)
    for (const uint64_t address : code.lines().addresses(file, static_cast<uint32_t>(number)))
      if (code.program().at(code.base() + address)) out.push_back(address);
  require<UsageError>(!out.empty(), "no code comes from line ", printable(text));
  return out;
}

}  // namespace rocm_sd::emu
