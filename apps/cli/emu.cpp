// rocm-sd emu: run, look into and take apart AMD machine code without an AMD GPU.
#include "apps/cli/commands.hpp"
#include "base/error.hpp"

#ifdef ROCM_SD_HAS_EMULATOR
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.hpp"
#include "base/text.hpp"
#include "emulator/launch_time.hpp"
#include "emulator/offload_bundle.hpp"
#include "emulator/report.hpp"
#include "emulator/tool/bound_arguments.hpp"
#include "emulator/tool/coverage.hpp"
#include "emulator/tool/listing.hpp"
#include "emulator/tool/registers.hpp"
#include "emulator/tool/timeline.hpp"
#include "runtime/kernel_archive.hpp"
#endif

namespace rocm_sd::cli {

#ifndef ROCM_SD_HAS_EMULATOR

void add_emu(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("emu", "run AMD machine code without an AMD GPU (not in this build)");
  sub->allow_extras();
  sub->callback([] {
    throw UsageError("this rocm-sd was built without the emulated AMD GPU (llvm-19-dev was not there)");
  });
}

#else

namespace {

constexpr uint64_t kFileLimit = uint64_t{1} << 30;
constexpr double kSecondsLimit = 60;

struct RunCommand {
  std::string file, kernel, grid = "1", block = "1", group = "0", stop, target, limit, timeline, machine;
  std::vector<std::string> arguments;
  uint32_t lds = 0, wave = 0, stack = 16384;
  int threads = 0;
  bool trace = false, disasm = false, check = false, count = false, time = false, warm = false;
};
struct ListCommand {
  std::string file, target;
  bool json = false;
};

// "4", "4,2" or "4,2,1"; what is left out is `rest`.
std::array<uint32_t, 3> parse_dim(const std::string& text, const char* name, uint32_t rest) {
  std::array<uint32_t, 3> out{rest, rest, rest};
  const char *at = text.data(), *end = at + text.size();
  for (size_t i = 0; i < 3; ++i) {
    const auto result = std::from_chars(at, end, out[i]);
    at = result.ptr;
    if (result.ec != std::errc{}) break;
    if (at == end) return out;
    if (*at++ != ',') break;
  }
  throw UsageError(concat("--", name, ": expected X, X,Y or X,Y,Z, got \"", printable(text), '"'));
}
emu::Dim3 dim3(const std::array<uint32_t, 3>& v) { return {v[0], v[1], v[2]}; }

// "90s", "10m", "5e9" (instructions of a wave), two of them with a comma between, or "none".
void parse_limit(const std::string& text, emu::Options& options) {
  if (text == "none") return;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    double value = 0;
    const auto result = std::from_chars(text.data() + at, text.data() + comma, value);
    const std::string_view unit(result.ptr, static_cast<size_t>(text.data() + comma - result.ptr));
    const bool known = unit.empty() || unit == "s" || unit == "m";
    if (result.ec != std::errc{} || !known || !(value > 0) || value > 1e18)
      throw UsageError(concat(
          "--limit: expected seconds (90s), minutes (10m), instructions of a wave (5e9), two of them with a "
          "comma between, or none; got \"",
          printable(text), '"'));
    if (unit.empty())
      options.instruction_limit = std::max<uint64_t>(1, static_cast<uint64_t>(value));
    else
      options.seconds_limit = unit == "m" ? value * 60 : value;
    at = comma + 1;
  }
}

struct Object {
  std::string name, target;
  std::vector<std::byte> bytes;
};

std::vector<std::byte> to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string chosen(const std::string& path, const std::string& target,
                   const std::vector<std::string>& targets) {
  std::string known;
  for (const std::string& t : targets) {
    if (t == target || (target.empty() && targets.size() == 1)) return t;
    known += " " + t;
  }
  throw UsageError(
      concat(printable(path), ": --target says which of", known.empty() ? " no AMD target" : known));
}

// The code objects of a file: itself, that of a bundle for `target`, or those of a kernel archive (only the
// one with `kernel`, unless that is empty).
std::vector<Object> read_objects(const std::string& path, const std::string& target,
                                 std::string_view kernel) {
  const std::string head = [&] {
    const InputFile file(path);
    std::string out(std::min<uint64_t>(file.size(), 8), '\0');
    file.read_at(0, out.data(), out.size());
    return out;
  }();
  if (head == "RSDKERN\n") {
    const KernelArchive archive(path);
    std::vector<Object> out;
    const auto add = [&](const ArchivedObject& o) {
      out.push_back({concat(path, ":", printable(o.name)), archive.target(), to_bytes(archive.read(o))});
    };
    if (kernel.empty()) {
      for (const ArchivedObject& o : archive.objects()) add(o);
      return out;
    }
    const auto found = archive.kernels().find(kernel);
    if (found == archive.kernels().end()) {
      std::vector<std::string> names;
      for (const auto& [name, k] : archive.kernels()) names.push_back(name);
      throw UsageError(concat(printable(path), ": no kernel ", printable(kernel),
                              "; near it: ", nearest_name(kernel, names)));
    }
    add(archive.objects()[found->second.object]);
    return out;
  }
  const std::vector<std::byte> bytes = to_bytes(read_file(path, kFileLimit));
  if (!emu::is_offload_bundle(bytes)) return {{path, "", bytes}};
  const auto bundled = emu::read_offload_bundle(bytes, printable(path));
  std::vector<std::string> targets;
  for (const auto& object : bundled) targets.push_back(object.target);
  const std::string wanted = chosen(path, target, targets);
  for (const auto& object : bundled)
    if (object.target == wanted)
      return {{path, wanted, std::vector<std::byte>(object.bytes.begin(), object.bytes.end())}};
  return {};
}

// FILE KERNEL, or FILE:KERNEL, or FILE alone where it holds one kernel.
void split_kernel(RunCommand& c) {
  const size_t colon = c.file.rfind(':');
  if (!c.kernel.empty() || colon == std::string::npos || path_exists(c.file)) return;
  c.kernel = c.file.substr(colon + 1);
  c.file.resize(colon);
}

std::string only_kernel(const emu::CodeObject& code, const std::string& asked) {
  const std::vector<std::string> names = code.kernels();
  if (asked.empty() && names.size() == 1) return names[0];
  for (const std::string& name : names)
    if (name == asked) return name;
  std::string known;
  for (size_t i = 0; i < names.size() && i < 20; ++i) known += " " + printable(names[i]);
  if (names.size() > 20) known += " ...";
  throw UsageError(concat(asked.empty() ? std::string("which kernel") : "no kernel " + printable(asked),
                          ": there", names.size() == 1 ? " is" : " are", known.empty() ? " none" : known));
}

struct Stopped {};  // a breakpoint was reached

// Models the launch in place of running it.
void time_emu(const RunCommand& c, emu::Gpu& gpu, const emu::CodeObject& code, const emu::Kernel& kernel,
              const emu::Launch& launch, std::span<const std::byte> arguments) {
  const emu::Machine machine = emu::find_machine(c.machine.empty() ? code.target() : c.machine);
  emu::Timeline timeline(code);
  emu::TimeOptions options{.warm = c.warm};
  if (!c.timeline.empty()) options.watch = [&](const emu::Issued& i) { timeline.add(i); };
  const emu::LaunchTime time = gpu.time(code, kernel.name, launch, arguments, machine, options);
  nlohmann::ordered_json out = {{"kernel", kernel.name}, {"machine", machine.name}, {"modelled", true}};
  out.update(emu::to_json(time));
  fmt::print("{}\n", out.dump(2));
  if (c.timeline.empty()) return;
  AtomicFile file(c.timeline);
  file.write(timeline.json(time));
  file.commit();
  fmt::print(stderr, "{}: the waves of one processor{}; modelled, not measured\n", c.timeline,
             timeline.cut() ? concat(", their first ", emu::Timeline::kMax, " instructions") : "");
}

void run_emu(RunCommand c) {
  split_kernel(c);
  const std::vector<Object> objects = read_objects(c.file, c.target, c.kernel);
  if (objects.size() != 1)
    throw UsageError(concat(printable(c.file), ": an archive; name one of its kernels"));
  const std::string target = emu::read_code_object(objects[0].bytes, printable(objects[0].name)).target;
  emu::Options options{.threads = c.threads, .count = c.count || c.disasm, .check = c.check};
  options.seconds_limit = c.limit.empty() ? kSecondsLimit : 0;
  if (!c.limit.empty()) parse_limit(c.limit, options);
  options.stack_bytes = c.stack;
  emu::Gpu gpu(target, options);
  const emu::CodeObject code = gpu.load(objects[0].bytes, printable(objects[0].name));
  const emu::Kernel& kernel = code.kernel(only_kernel(code, c.kernel));
  if (!code.lines().damage().empty())
    fmt::print(stderr, "note: no source lines: {}\n", code.lines().damage());

  std::vector<emu::ArgumentText> texts;
  for (const std::string& a : c.arguments) texts.push_back(emu::parse_argument(a));
  const emu::BoundArguments arguments(gpu, kernel, texts);
  const emu::Launch launch{dim3(parse_dim(c.grid, "grid", 1)), dim3(parse_dim(c.block, "block", 1)), c.lds};
  const auto group = parse_dim(c.group, "group", 0);
  if (c.time || !c.timeline.empty()) return time_emu(c, gpu, code, kernel, launch, arguments.bytes());

  emu::WaveTracer tracer(code, kernel, group, c.wave,
                         [](const std::string& line) { fmt::print("{}\n", line); });
  const std::vector<uint64_t> stops =
      c.stop.empty() ? std::vector<uint64_t>{} : emu::find_places(code, c.stop);
  if (c.trace) {  // so that pointers in registers can be told
    fmt::print("image {:#x}\n", code.base());
    for (const std::string& line : arguments.places()) fmt::print("{}\n", line);
  }
  if (!stops.empty() || c.trace)
    gpu.options().before = [&](const emu::Wave& wave, const emu::Inst& inst, std::string_view) {
      if (c.trace) tracer.before(wave);
      for (const uint64_t stop : stops)
        if (inst.address - code.base() == stop && tracer.follows(wave)) {
          fmt::print("{}", emu::all_registers(wave, code, kernel));
          throw Stopped();
        }
    };
  if (c.trace)
    gpu.options().trace = [&](const emu::Wave& wave, const emu::Inst& inst, std::string_view text) {
      tracer.after(wave, inst, text);
    };
  emu::Counters counters;
  try {
    counters = gpu.launch(code, kernel.name, launch, arguments.bytes());
  } catch (const Stopped&) {
    std::fflush(stdout);
    fmt::print(stderr, "stopped; no output was written\n");
    return;
  } catch (const emu::KernelFault& fault) {
    const std::string_view what = fault.what();
    if (c.limit.empty() && what.find(": no end after ") != std::string_view::npos)
      throw emu::KernelFault(concat(what, "\n--limit allows more (10m, none)"));
    throw;
  }
  if (!stops.empty()) fmt::print(stderr, "wave {} of group {} never came to {}\n", c.wave, c.group, c.stop);
  if (c.trace && !tracer.seen()) fmt::print(stderr, "there is no wave {} of group {}\n", c.wave, c.group);
  if (c.disasm) fmt::print("{}", emu::disassembly(code, kernel, counters.executed));
  if (c.count) fmt::print("{}\n", emu::to_json(counters, code, kernel, launch).dump(2));
  // Machine-readable text stands alone on stdout.
  for (const std::string& line : arguments.store())
    fmt::print(c.count || c.disasm || c.trace ? stderr : stdout, "{}\n", line);
}

void list_emu(const ListCommand& c) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Object& object : read_objects(c.file, c.target, {})) {
    const emu::CodeImage image = emu::read_code_object(object.bytes, printable(object.name));
    if (c.json) {
      all.push_back(emu::kernels_json(image));
      all.back()["file"] = printable(object.name);
    } else {
      fmt::print("{}: {}", printable(object.name), emu::kernels_text(image));
    }
  }
  if (c.json) fmt::print("{}\n", all.dump(2));
}

}  // namespace

void add_emu(CLI::App& app) {
  CLI::App* emu = app.add_subcommand("emu", "run AMD machine code without an AMD GPU");
  emu->require_subcommand(1);
  auto run = std::make_shared<RunCommand>();
  CLI::App* sub = emu->add_subcommand("run", "run a kernel; see docs/emulator.md");
  sub->add_option("FILE", run->file,
                  "code object, offload bundle or kernel archive; FILE:KERNEL names a kernel")
      ->required();
  sub->add_option("KERNEL", run->kernel, "[the only one]");
  sub->add_option("--grid", run->grid, "groups: X, X,Y or X,Y,Z [1]");
  sub->add_option("--block", run->block, "threads of a group, likewise [1]");
  sub->add_option("--arg", run->arguments,
                  "an argument: in:FILE.npy, inout:FILE.npy[:TO.npy], out:TYPE[SHAPE][:TO.npy], zeros:..., "
                  "TYPE:VALUE, null or {A,B,...} for a struct")
      ->allow_extra_args(false);
  sub->add_option("--lds", run->lds, "bytes of dynamic LDS [0]");
  sub->add_option(
      "--limit", run->limit,
      "stop after 90s, 10m or 5e9 (instructions of a wave); both with a comma between; none [60s]");
  sub->add_option("--stack", run->stack, "bytes of a lane's stack where a kernel recurses [16384]")
      ->check(CLI::Range(0, 1 << 18));
  sub->add_option("--target", run->target, "gfx90a, ...: which object of a bundle");
  sub->add_option("--threads", run->threads, "host threads [one a core]")->check(CLI::Range(0, 1024));
  sub->add_flag("--trace", run->trace, "print each instruction of a wave and the registers that it changed");
  sub->add_option("--group", run->group, "the group of --trace and --break: X, X,Y or X,Y,Z [0]");
  sub->add_option("--wave", run->wave, "the wave of that group [0]");
  sub->add_option("--break", run->stop,
                  "print the registers at an address (0x1a40) or line (12, a.hip:12); stop");
  sub->add_flag("--disasm", run->disasm, "print the disassembly with how often each instruction ran");
  sub->add_flag("--check", run->check, "races and reads of what nothing wrote are errors");
  sub->add_flag("--count", run->count, "print counts as JSON");
  sub->add_flag("--time", run->time, "model the launch's time on a card in place of running it; print JSON");
  sub->add_option(
      "--timeline", run->timeline,
      "the same, and write a trace of one processor's waves (Perfetto, chrome://tracing) to a file");
  sub->add_option("--machine", run->machine, "the card of --time: a name of share/machines [the target's]");
  sub->add_flag("--warm", run->warm,
                "--time: caches hold the data as far as it fits, as in a repeated launch");
  sub->callback([run] { run_emu(*run); });
  auto list = std::make_shared<ListCommand>();
  sub = emu->add_subcommand("list", "tell a file's kernels: registers, LDS, arguments");
  sub->add_option("FILE", list->file, "code object, offload bundle or kernel archive")->required();
  sub->add_option("--target", list->target, "which object of a bundle");
  sub->add_flag("--json", list->json, "print JSON");
  sub->callback([list] { list_emu(*list); });
  emu->add_subcommand("coverage",
                      "print which instructions are implemented, as docs/reference/emulator-coverage.md")
      ->callback([] { fmt::print("{}", emu::coverage_markdown()); });
}

#endif

}  // namespace rocm_sd::cli
