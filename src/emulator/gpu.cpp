#include "emulator/gpu.hpp"

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "emulator/executor.hpp"
#include "emulator/launch_time.hpp"
#include "emulator/translate.hpp"

namespace rocm_sd::emu {

namespace {

constexpr size_t kPage = 4096;

struct Free {
  void operator()(void* p) const { std::free(p); }
};

const std::vector<Target>& all_targets() {
  static const std::vector<Target> list = [] {
    std::vector<Target> out;
    for (const char* name : {"gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151"})
      out.push_back({.name = name, .gfx11 = true});
    for (const char* name : {"gfx1200", "gfx1201"}) out.push_back({.name = name, .gfx12 = true});
    out.push_back({.name = "gfx90a", .gfx9 = true, .architected_scratch = false, .accumulators = true});
    for (const char* name : {"gfx940", "gfx942"})
      out.push_back({.name = name, .gfx9 = true, .accumulators = true});
    return out;
  }();
  return list;
}

}  // namespace

Target find_target(std::string_view name) {
  std::string known;
  for (const Target& t : all_targets()) {
    if (t.name == name) return t;
    known += " " + t.name;
  }
  throw UsageError(concat("emulated GPU: no target ", printable(name), "; there are", known));
}

std::vector<std::string> targets() {
  std::vector<std::string> out;
  for (const Target& t : all_targets()) out.push_back(t.name);
  return out;
}

struct CodeObject::Loaded {
  CodeImage file;
  std::unique_ptr<void, Free> image;
  Target target;
  std::shared_ptr<Memory> memory;
  // Translated when a kernel of it first runs.
  mutable std::once_flag once;
  mutable Program translated;

  const Program& program() const {
    std::call_once(once, [this] {
      std::vector<std::pair<uint64_t, uint64_t>> sections;
      for (const CodeSection& s : file.code) sections.emplace_back(s.begin, s.end);
      translated = translate(std::span(static_cast<const std::byte*>(image.get()), file.image.size()), base(),
                             sections, target);
      translated.lines = &file.lines;
    });
    return translated;
  }

  uint64_t base() const { return reinterpret_cast<uint64_t>(image.get()); }
  ~Loaded() {
    if (memory && image) memory->forget(image.get());
  }
};

const Kernel& CodeObject::kernel(std::string_view name) const {
  const auto found = loaded_->file.kernels.find(name);
  require<UsageError>(found != loaded_->file.kernels.end(), "emulated GPU: no kernel ", printable(name));
  return found->second;
}
std::vector<std::string> CodeObject::kernels() const {
  std::vector<std::string> out;
  for (const auto& [name, kernel] : loaded_->file.kernels) out.push_back(name);
  return out;
}
const std::string& CodeObject::target() const { return loaded_->file.target; }
const Program& CodeObject::program() const { return loaded_->program(); }
uint64_t CodeObject::base() const { return loaded_->base(); }
const LineTable& CodeObject::lines() const { return loaded_->file.lines; }
std::optional<std::string> CodeObject::source_line(uint64_t offset) const {
  const SourceLine at = lines().at(offset);
  if (at.line == 0) return std::nullopt;
  return concat(printable(at.file), ":", at.line);
}

Gpu::Gpu(const std::string& arch, Options options)
    : target_(find_target(arch)), options_(std::move(options)), memory_(std::make_shared<Memory>()) {}

void Gpu::write(void* to, const void* from, size_t bytes) {
  memory_->require_inside(to, bytes);
  if (bytes > 0) std::memcpy(to, from, bytes);
  memory_->mark_written(to, bytes);
}
void Gpu::read(void* to, const void* from, size_t bytes) const {
  memory_->require_inside(from, bytes);
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void Gpu::copy(void* to, const void* from, size_t bytes) {
  memory_->require_inside(to, bytes);
  memory_->require_inside(from, bytes);
  if (bytes > 0) std::memmove(to, from, bytes);
  memory_->copy_written(to, from, bytes);
}
void Gpu::zero(void* to, size_t bytes) {
  memory_->require_inside(to, bytes);
  if (bytes > 0) std::memset(to, 0, bytes);
  memory_->mark_written(to, bytes);
}

CodeObject Gpu::load(std::span<const std::byte> file, const std::string& what) {
  auto loaded = std::make_shared<CodeObject::Loaded>();
  loaded->file = read_code_object(file, what);
  require<UsageError>(loaded->file.target == target_.name, what, ": made for ", loaded->file.target,
                      ", the emulated GPU is a ", target_.name);
  // A page more than the image: the last instructions may be fetched past its end.
  const size_t size = (loaded->file.image.size() + kPage - 1) / kPage * kPage + kPage;
  loaded->image.reset(std::aligned_alloc(kPage, size));
  require<OutOfMemoryError>(loaded->image != nullptr, what, ": no memory for ", size, " bytes");
  auto* bytes = static_cast<std::byte*>(loaded->image.get());
  std::memset(bytes, 0, size);
  std::memcpy(bytes, loaded->file.image.data(), loaded->file.image.size());
  for (const auto& r : loaded->file.relocations) {
    const uint64_t value = loaded->base() + r.addend;
    std::memcpy(bytes + r.offset, &value, sizeof(value));
  }
  loaded->target = target_;
  memory_->admit(bytes, loaded->file.image.size());
  loaded->memory = memory_;
  CodeObject out;
  out.loaded_ = std::move(loaded);
  return out;
}

Counters Gpu::launch(const CodeObject& code, std::string_view name, const Launch& launch,
                     std::span<const std::byte> kernarg) {
  const Kernel& kernel = code.kernel(name);
  LaunchPlan plan(code.program(), code.base(), kernel, launch, kernarg, *memory_, options_.stack_bytes);
  return run(plan, options_);
}

LaunchTime Gpu::time(const CodeObject& code, std::string_view name, const Launch& launch,
                     std::span<const std::byte> kernarg, const Machine& machine, const TimeOptions& options) {
  const Kernel& kernel = code.kernel(name);
  const LaunchPlan plan(code.program(), code.base(), kernel, launch, kernarg, *memory_, options_.stack_bytes);
  return time_launch(plan, machine, options);
}

}  // namespace rocm_sd::emu
