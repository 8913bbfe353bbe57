// Times LoRAs on a GPU with random full-size weights: merging one, changing its strength, a second one,
// taking both back, each with the file's opening apart; then a UNet's step with the same LoRA at run time
// beside the plain step and the merged one, with the error of each against the merged weights, and once
// alternated with the plain step.
//
//   bench_lora_gpu [device] [f16|bf16] [--json FILE] [--trace STEM] [--rank N] [--all]
//                  [sdxl|sd15[:WIDTHxHEIGHT[:IMAGES]]]
//
// --trace: the times of each launch of the plain and of the run-time step, to STEM-plain.json and
// STEM-run-time.json in Chrome's format, and as tables.
// By default SDXL at 1024x1024, one image with guidance, rank 32 on the linear layers of all transformers;
// --all: on every convolution, too. The LoRA's file is made in the folder of temporary files and removed.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/format.hpp"
#include "kernels/elementwise/elementwise.hpp"
#include "measurement/record.hpp"
#include "models/adapted_source.hpp"
#include "models/low_rank_terms.hpp"
#include "models/unet.hpp"
#include "performance_tests/gpu/graph_time.hpp"
#include "performance_tests/gpu/pool_source.hpp"
#include "runtime/devices.hpp"
#include "runtime/gpu.hpp"

namespace {

using namespace rocm_sd;
using bench::waves;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// Counts what is read of the model.
class CountedSource final : public ParameterSource {
 public:
  std::string title() const override { return source_.title(); }
  bool has(const std::string&) const override { return true; }
  void ignore(const std::string&) const override {}
  void read(const std::string& name, const Shape& shape, DType dtype, void* dst) const override {
    ++reads;
    source_.read(name, shape, dtype, dst);
  }
  void read_part(const std::string& name, const Shape& shape, int64_t begin, int64_t count, DType dtype,
                 void* dst) const override {
    ++reads;
    source_.read_part(name, shape, begin, count, dtype, dst);
  }
  mutable int reads = 0;

 private:
  bench::PoolSource source_;
};

// A layer that a LoRA changes.
bool is_target(const ParameterSlot::Part& part, bool all) {
  if (!part.name.ends_with(".weight") || part.shape.rank() < 2) return false;
  const bool transformer = part.name.find("attentions.") != std::string::npos;
  return all ? part.name.find("_blocks.") != std::string::npos || part.name.starts_with("mid_block.")
             : transformer;
}

// A LoRA of f16 in PEFT's names: a change of a sixth of the weights' deviation.
void write_lora(const std::string& path, const std::vector<ParameterSlot::Part>& parts, int64_t rank,
                bool all, uint32_t seed) {
  Json header;
  std::vector<std::pair<int64_t, float>> pieces;  // values, amplitude
  uint64_t at = 0;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, double deviation) {
    const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    header[name] = {{"dtype", "F16"}, {"shape", shape}, {"data_offsets", {at, at + 2 * uint64_t(count)}}};
    at += 2 * static_cast<uint64_t>(count);
    pieces.emplace_back(count, static_cast<float>(deviation * std::sqrt(3)));
  };
  for (const ParameterSlot::Part& part : parts) {
    if (!is_target(part, all)) continue;
    const std::string stem = "unet." + part.name.substr(0, part.name.rfind('.'));
    const Shape& s = part.shape;
    const double in = static_cast<double>(s.numel()) / static_cast<double>(s[0]);
    const bool filter = s.rank() == 4;
    add(stem + ".lora_A.weight",
        filter ? std::vector<int64_t>{rank, s[1], s[2], s[3]} : std::vector<int64_t>{rank, s[1]},
        1 / std::sqrt(in));
    add(stem + ".lora_B.weight",
        filter ? std::vector<int64_t>{s[0], rank, 1, 1} : std::vector<int64_t>{s[0], rank},
        0.1 / std::sqrt(static_cast<double>(rank)));
  }
  const std::string text = header.dump();
  std::ofstream file(path, std::ios::binary);
  const uint64_t length = text.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file.write(text.data(), static_cast<std::streamsize>(length));
  std::mt19937 random(seed);
  std::vector<float> values;
  std::vector<uint16_t> halves;
  for (const auto& [count, amplitude] : pieces) {
    values.resize(static_cast<size_t>(count));
    halves.resize(values.size());
    for (float& v : values) v = (static_cast<float>(random() >> 8) * 0x1p-23f - 1.0f) * amplitude;
    convert_elements(values.data(), DType::kF32, halves.data(), DType::kF16, count);
    file.write(reinterpret_cast<const char*>(halves.data()), static_cast<std::streamsize>(2 * count));
  }
  require<FileError>(file.good(), path, ": cannot be written");
}

AdapterTargets targets_of(const std::vector<ParameterSlot::Part>& parts) {
  std::vector<MemoryTensor> tensors;
  for (const ParameterSlot::Part& part : parts)
    tensors.push_back({part.name, DType::kF32, part.shape, nullptr});
  const auto file = SafetensorsFile::of_memory("model", tensors);
  std::map<std::string, StoredTensor, std::less<>> weights;
  for (const TensorEntry& entry : file->entries()) weights[entry.name] = {{file.get(), &entry}, entry.shape};
  AdapterTargets targets;
  targets.add(WeightStore(Component::kUnet, "unet", {file}, weights));
  return targets;
}

// ||a - b|| / ||b||
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(error / norm);
}

struct Options {
  std::string device = "auto", file, trace;
  DType dtype = DType::kF16;
  UNetConfig config = configs::unet_sdxl();
  std::string model = "sdxl";
  int64_t width = 1024, height = 1024, images = 1, rank = 32;
  bool all = false;
};

class LoraBench {
 public:
  LoraBench(GpuDevice& device, const Options& options)
      : device_(device),
        o_(options),
        model_(UNet::load(device, options.config, source_, options.dtype)),
        report_(measurement::record_head("lora", device)) {
    const int64_t rows = 2 * o_.images, h = o_.height / 8, w = o_.width / 8;
    const UNetConfig& config = o_.config;
    cache_ = model_.make_text_cache(device_, rows, 77);
    latents_ = waves(device_, {rows, h, w, config.in_channels}, o_.dtype);
    states_ = waves(device_, {rows, 77, config.context_width()}, o_.dtype);
    time_.timestep = waves(device_, {rows}, DType::kF32);
    if (config.has_added_conditions()) {
      time_.time_ids = waves(device_, {rows, 6}, DType::kF32);
      time_.text_embeds = waves(device_, {rows, config.added_width - 6 * config.added_time_width}, o_.dtype);
    }
    shifts_ = make_tensor(device_, {rows, model_.time_channels()}, o_.dtype);
    out_ = make_tensor(device_, {rows, h, w, config.out_channels}, DType::kF32);
    report_["rows"] = Json::array();
    report_["model"] = o_.model;
    report_["size"] = fmt::format("{}x{}", o_.width, o_.height);
    report_["images"] = o_.images;
    report_["dtype"] = dtype_name(o_.dtype);
    report_["rank"] = o_.rank;
    report_["layers"] = o_.all ? "all" : "transformers";
  }

  void operator()() {
    const std::string folder = std::filesystem::temp_directory_path().string();
    const auto parts = list_parameters(model_);
    const AdapterTargets targets = targets_of(parts);
    std::vector<std::shared_ptr<const AdapterFile>> files;
    for (const uint32_t seed : {1u, 2u}) {
      const std::string path = fmt::format("{}/bench_lora_{}_{}.safetensors", folder, ::getpid(), seed);
      removed_.paths.push_back(path);
      write_lora(path, parts, o_.rank, o_.all, seed);
      const auto begin = Clock::now();
      files.push_back(AdapterFile::open(path, targets, "model"));
      note("open and check", milliseconds_since(begin), {{"modules", files.back()->size()}});
    }
    const std::vector<float> plain = step("plain step");
    const AdapterUse one{files[0], 0.8}, changed{files[0], 0.5}, two{files[1], 0.7};
    merge("add", {one});
    const std::vector<float> merged = step("merged step", &plain);
    merge("change strength", {changed});
    const std::vector<float> half = step("merged step, other strength", &plain);
    merge("add a second", {changed, two});
    const std::vector<float> both = step("merged step, two", &plain);
    merge("change both", {one, {files[1], 0.1}});
    merge("remove the second", {one});
    merge("remove", {});
    step("plain step again", &plain);
    plain_arena_.emplace(device_);
    plain_step_.emplace("plain step", *plain_arena_,
                        [this](Exec& ex) { copy_into(ex, model_(ex, latents_, shifts_, cache_), out_); });
    plain_step_->run();  // captured without terms
    trace(*plain_step_, "plain");
    run_time(files, merged, half, both);
    write();
  }

 private:
  void note(const std::string& what, double ms, Json more = Json::object()) {
    Json row = {{"what", what}, {"ms", ms}};
    row.update(more);
    fmt::print("{:40} {:9.3f} ms  {}\n", what, ms, more.dump());
    std::fflush(stdout);
    report_["rows"].push_back(std::move(row));
  }

  void merge(const std::string& what, std::vector<AdapterUse> wanted) {
    device_.synchronize();
    const int reads = source_.reads;
    const auto begin = Clock::now();
    {
      DeviceMerge merge(bases_, Component::kUnet, now_, wanted, device_);
      const AdaptedSource adapted(source_, Component::kUnet, wanted, &merge);
      model_.update(device_, adapted, {}, [&](const ParameterSlot& slot) {
        return std::ranges::any_of(slot.parts, [&](const ParameterSlot::Part& part) {
          return any_changes(now_, Component::kUnet, part.name) ||
                 any_changes(wanted, Component::kUnet, part.name);
        });
      });
      device_.synchronize();
    }
    now_ = std::move(wanted);
    note(what, milliseconds_since(begin),
         {{"model_reads", source_.reads - reads}, {"kept_bytes", bases_.bytes()}});
  }

  // Plans, runs and times the step as the model is now.
  std::vector<float> step(const std::string& what, const std::vector<float>* other = nullptr,
                          const char* error_of = "change_of_plain") {
    prepare_.reset();
    step_.reset();
    arena_.emplace(device_);
    prepare_.emplace("text and time", *arena_, [this](Exec& ex) {
      model_.prepare_text(ex, states_, cache_);
      copy_into(ex, model_.time_shifts(ex, time_), shifts_);
    });
    step_.emplace("step", *arena_,
                  [this](Exec& ex) { copy_into(ex, model_(ex, latents_, shifts_, cache_), out_); });
    return replay(what, other, error_of);
  }
  // The same of what was captured.
  std::vector<float> replay(const std::string& what, const std::vector<float>* other, const char* error_of) {
    prepare_->run();
    step_->run();
    step_->run();
    std::vector<double> times;
    const auto start = device_.make_event(), end = device_.make_event();
    for (int i = 0; i < 30; ++i) {
      start->record();
      step_->run();
      end->record();
      times.push_back(end->milliseconds_since(*start));
    }
    std::ranges::nth_element(times, times.begin() + 15);
    std::vector<float> out = to_floats(device_, out_);
    Json more = {{"tflop", step_->flops() * 1e-12}};
    if (plain_ms_ == 0) plain_ms_ = times[15];
    more["of_plain"] = times[15] / plain_ms_;
    if (other) more[error_of] = relative_error(out, *other);
    note(what, times[15], std::move(more));
    return out;
  }

  void trace(Program& program, const char* name) const {
    if (o_.trace.empty()) return;
    Profiler profiler;
    program.run(&profiler);
    profiler.write_chrome_trace(concat(o_.trace, "-", name, ".json"));
    fmt::print("{}:\n{}", name, profiler.table());
  }

  // The plain step and the one with terms in turn, so that neither has a warmer or cooler GPU.
  void alternated(const std::string& what) {
    std::vector<double> plain, own;
    const auto start = device_.make_event(), end = device_.make_event();
    for (int i = 0; i < 30; ++i)
      for (Program* program : {&*plain_step_, &*step_}) {
        start->record();
        program->run();
        end->record();
        (program == &*step_ ? own : plain).push_back(end->milliseconds_since(*start));
      }
    std::ranges::nth_element(plain, plain.begin() + 15);
    std::ranges::nth_element(own, own.begin() + 15);
    note(what, own[15], {{"plain_ms", plain[15]}, {"of_plain", own[15] / plain[15]}});
  }

  void run_time(const std::vector<std::shared_ptr<const AdapterFile>>& files,
                const std::vector<float>& merged, const std::vector<float>& half,
                const std::vector<float>& both) {
    const VisitModel visit = [this](Visitor& v) { model_.visit(v); };
    const auto rows = static_cast<size_t>(2 * o_.images);
    const auto strengths = std::make_shared<RowStrengths>(device_);
    const auto set_terms = [&](const char* what, const std::vector<AdapterUse>& uses,
                               const std::shared_ptr<RowStrengths>& to) {
      const auto begin = Clock::now();
      set_low_rank_terms(visit, {device_, Component::kUnet, to}, uses);
      device_.synchronize();
      note(what, milliseconds_since(begin), {{"term_bytes", low_rank_bytes(visit)}});
    };
    set_terms("run time: set terms", {{files[0], 1}}, strengths);
    strengths->set(std::vector(rows, std::vector<float>{0.8f}));
    step("run-time step", &merged, "error_of_merged");
    alternated("run-time step, alternated with plain");
    trace(*step_, "run-time");
    const auto begin = Clock::now();
    strengths->set(std::vector(rows, std::vector<float>{0.5f}));
    device_.synchronize();
    note("run time: change strength", milliseconds_since(begin));
    replay("run-time step, other strength, same capture", &half, "error_of_merged");
    const auto of_two = std::make_shared<RowStrengths>(device_);
    set_terms("run time: set terms of two", {{files[0], 1}, {files[1], 1}}, of_two);
    of_two->set(std::vector(rows, std::vector<float>{0.5f, 0.7f}));
    step("run-time step, two", &both, "error_of_merged");
    set_terms("run time: without terms", {}, nullptr);
  }

  void write() const {
    if (o_.file.empty()) return;
    AtomicFile out(o_.file);
    out.write(report_.dump(1) + "\n");
    out.commit();
  }

  // Files that are gone at the end, however it comes.
  struct RemovedFiles {
    std::vector<std::string> paths;
    ~RemovedFiles() {
      std::error_code ignored;
      for (const std::string& path : paths) std::filesystem::remove(path, ignored);
    }
  };

  RemovedFiles removed_;
  GpuDevice& device_;
  const Options& o_;
  CountedSource source_;
  UNet model_;
  Json report_;
  TextCache cache_;
  TimeInputs time_;
  Tensor latents_, states_, shifts_, out_;
  AdapterBases bases_;
  std::vector<AdapterUse> now_;
  std::optional<Arena> arena_;
  std::optional<Program> prepare_, step_;
  std::optional<Arena> plain_arena_;
  std::optional<Program> plain_step_;
  double plain_ms_ = 0;
};

Options parse(std::vector<std::string> words) {
  Options o;
  const auto take = [&](const char* name) -> std::optional<std::string> {
    const auto at = std::ranges::find(words, name);
    if (at == words.end()) return std::nullopt;
    require<UsageError>(at + 1 != words.end(), "bench_lora_gpu: ", name, ": expected a value");
    const std::string value = at[1];
    words.erase(at, at + 2);
    return value;
  };
  o.file = take("--json").value_or("");
  o.trace = take("--trace").value_or("");
  o.rank = std::stoll(take("--rank").value_or("32"));
  o.all = std::erase(words, "--all") > 0;
  require<UsageError>(words.size() <= 3 && o.rank > 0,
                      "bench_lora_gpu: [device] [f16|bf16] [--json FILE] "
                      "[--trace STEM] [--rank N] [--all] [sdxl|sd15[:WxH[:IMAGES]]]");
  if (!words.empty()) o.device = words[0];
  if (words.size() > 1 && words[1] == "bf16") o.dtype = DType::kBF16;
  if (words.size() < 3) return o;
  o.model = words[2].substr(0, words[2].find(':'));
  require<UsageError>(o.model == "sdxl" || o.model == "sd15", "bench_lora_gpu: expected sdxl or sd15, got ",
                      o.model);
  if (o.model == "sd15") o.config = configs::unet_sd1(), o.width = o.height = 512;
  long long width = o.width, height = o.height, images = 1;
  std::sscanf(words[2].c_str() + o.model.size(), ":%lldx%lld:%lld", &width, &height, &images);
  o.width = width, o.height = height, o.images = images;
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse({argv + 1, argv + argc});
    Device& device = device_named(options.device);
    require<DeviceError>(device.kind() != DeviceKind::kHost, "bench_lora_gpu: needs a GPU, got ",
                         device.name());
    LoraBench(static_cast<GpuDevice&>(device), options)();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
