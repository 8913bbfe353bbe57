// How a launch is made ready for any addresses: the ops are recorded twice, over memory at two places. Words
// of the parameters that differ hold addresses, and by exactly what the places differ; all others are the
// same. Nothing has to know the structs, and a parameter that depends on an address in another way is found
// out.
#include "kernel_library/program.hpp"

#include <cstring>

#include "base/error.hpp"
#include "kernels/choice_record.hpp"

namespace rocm_sd::library {
namespace {

constexpr uint64_t kFirstBase = uint64_t{1} << 44, kSecondBase = kFirstBase + (uint64_t{3} << 42);
constexpr size_t kAlignment = 256;   // of what lies in the workspace
constexpr size_t kMaxParams = 4096;  // CUDA's limit

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// What a region of a recorder is to the caller.
struct Place {
  Role role = Role::kWorkspace;
  size_t offset = 0;
};

// One recording. The ops run twice over the same weight: its layouts are made by the first run alone, so what
// the second does not repeat is their preparation, and what it reads of the first run's memory is the layout.
struct Recording {
  LaunchRecorder gpu;
  std::vector<RecordedLaunch> prepare, run;
  std::vector<Place> places;  // of the recorder's regions
  std::vector<std::string> choices;
  size_t operands = 0, first_run = 0;  // regions that exist before the runs, and after the first

  Recording(GpuDevice& device, uint64_t base) : gpu(device, base) {}
};

bool same_launch(const RecordedLaunch& a, const RecordedLaunch& b) {
  return a.kernel == b.kernel && a.grid.x == b.grid.x && a.grid.y == b.grid.y && a.grid.z == b.grid.z &&
         a.grid.cluster == b.grid.cluster && a.grid.together == b.grid.together && a.threads == b.threads &&
         a.lds_bytes == b.lds_bytes && a.params.size() == b.params.size();
}

void record(Recording& recording, const Problem& problem) {
  LaunchRecorder& gpu = recording.gpu;
  Operands operands;
  for (const Operand& operand : problem.operands) {
    if (operand.output) continue;
    auto storage = std::make_shared<Storage>(gpu.allocate(operand.bytes()), operand.bytes());
    operands.emplace(operand.role, Tensor(std::move(storage), operand.shape, operand.strides, operand.dtype));
    recording.places.push_back({operand.role, 0});
  }
  recording.operands = gpu.regions().size();
  const auto found = operands.find(Role::kWeight);
  const Weight weight = found == operands.end() ? Weight() : Weight(found->second);
  Arena arena(gpu);
  Exec ex(arena);
  std::vector<RecordedLaunch> first;
  {
    const ChoiceRecord choices;
    problem.run(ex, operands, weight);
    recording.choices = choices.lines();
    first = gpu.take_launches();
    recording.first_run = gpu.regions().size();
  }
  const std::vector<Result> results = problem.run(ex, operands, weight);
  recording.run = gpu.take_launches();
  size_t repeated = 0;
  for (RecordedLaunch& launch : first) {
    if (repeated < recording.run.size() && same_launch(launch, recording.run[repeated]))
      ++repeated;
    else
      recording.prepare.push_back(std::move(launch));
  }
  require<InternalError>(repeated == recording.run.size(), problem.title(),
                         ": two runs launch different kernels");
  recording.places.resize(gpu.regions().size());
  for (const Result& result : results) {
    const int region = gpu.region_of(reinterpret_cast<uint64_t>(result.tensor.data()));
    require<InternalError>(region >= static_cast<int>(recording.first_run) && result.tensor.is_contiguous() &&
                               result.tensor.offset_bytes() == 0,
                           problem.title(), ": a result is not a block of its own");
    recording.places[static_cast<size_t>(region)] = {result.role, result.offset};
  }
}

uint64_t word_at(const RecordedLaunch& launch, size_t offset) {
  uint64_t word = 0;
  std::memcpy(&word, launch.params.data() + offset, std::min<size_t>(8, launch.params.size() - offset));
  return word;
}

// Calls found(offset, region, addend) for each address among the parameters of a launch of both recordings.
template <class Found>
void for_each_address(const std::string& text, const LaunchRecorder& gpu, const RecordedLaunch& a,
                      const RecordedLaunch& b, const Found& found) {
  require<InternalError>(same_launch(a, b) && a.params.size() <= kMaxParams, text, ": ", a.kernel->name,
                         " depends on addresses");
  for (size_t offset = 0; offset < a.params.size(); offset += 8) {
    const uint64_t word = word_at(a, offset), other = word_at(b, offset);
    if (word == other) continue;
    const int region = gpu.region_of(word);
    require<InternalError>(
        other - word == kSecondBase - kFirstBase && region >= 0 && offset + 8 <= a.params.size(), text, ": ",
        a.kernel->name, ": the parameter at byte ", offset, " depends on an address");
    found(offset, static_cast<size_t>(region), word - gpu.regions()[static_cast<size_t>(region)].begin);
  }
}

// Gives every region that the runs read of the first run's a place in kPrepared, and the others one in
// kWorkspace.
void place(Recording& a, const Recording& b, const std::string& text, LaunchProgram& program) {
  const auto prepared = [&](size_t region) {
    if (region >= a.operands && region < a.first_run) a.places[region].role = Role::kPrepared;
  };
  for (size_t i = 0; i < a.run.size(); ++i) {
    for_each_address(text, a.gpu, a.run[i], b.run[i],
                     [&](size_t, size_t region, uint64_t) { prepared(region); });
  }
  for (size_t i = a.operands; i < a.places.size(); ++i) {
    const Role role = a.places[i].role;
    if (role != Role::kPrepared && (role != Role::kWorkspace || i < a.first_run)) continue;
    size_t& bytes = role == Role::kPrepared ? program.prepared_bytes : program.workspace_bytes;
    a.places[i].offset = bytes;
    bytes += aligned(a.gpu.regions()[i].bytes);
  }
}

PlannedLaunch planned(const Recording& recording, const std::string& text, const RecordedLaunch& a,
                      const RecordedLaunch& b) {
  PlannedLaunch launch{a.kernel, a.grid, a.threads, a.lds_bytes, a.params, {}};
  for_each_address(text, recording.gpu, a, b, [&](size_t offset, size_t region, uint64_t addend) {
    const Place& at = recording.places[region];
    const uint64_t value = at.offset + addend;
    std::memcpy(launch.params.data() + offset, &value, sizeof(value));
    launch.pointers.push_back({static_cast<uint32_t>(offset), at.role});
  });
  return launch;
}

}  // namespace

LaunchProgram plan_launches(GpuDevice& gpu, const Problem& problem) {
  Recording a(gpu, kFirstBase), b(gpu, kSecondBase);
  record(a, problem);
  record(b, problem);
  require<InternalError>(a.run.size() == b.run.size() && a.prepare.size() == b.prepare.size() &&
                             a.places.size() == b.places.size(),
                         problem.title(), ": what is launched depends on addresses");
  LaunchProgram program;
  program.choices = a.choices;
  place(a, b, problem.title(), program);
  for (size_t i = 0; i < a.prepare.size(); ++i) {
    program.prepare.push_back(planned(a, problem.title(), a.prepare[i], b.prepare[i]));
    for (const PlannedLaunch::Pointer& pointer : program.prepare.back().pointers)
      require<InternalError>(pointer.role == Role::kWeight || pointer.role == Role::kPrepared,
                             problem.title(), ": ", a.prepare[i].kernel->name,
                             " prepares more than the weight");
  }
  for (size_t i = 0; i < a.run.size(); ++i)
    program.run.push_back(planned(a, problem.title(), a.run[i], b.run[i]));
  return program;
}

void start(GpuDevice& gpu, const std::vector<PlannedLaunch>& launches, const Pointers& pointers,
           void* stream) {
  alignas(16) std::byte params[kMaxParams];
  for (const PlannedLaunch& launch : launches) {
    std::memcpy(params, launch.params.data(), launch.params.size());
    for (const PlannedLaunch::Pointer& pointer : launch.pointers) {
      uint64_t word = 0;
      std::memcpy(&word, params + pointer.offset, sizeof(word));
      word += reinterpret_cast<uint64_t>(pointers[static_cast<size_t>(pointer.role)]);
      std::memcpy(params + pointer.offset, &word, sizeof(word));
    }
    gpu.launch_on(stream, *launch.kernel, launch.grid, launch.threads, launch.lds_bytes, params,
                  launch.params.size());
  }
}

}  // namespace rocm_sd::library
