// The GpuDevice over any driver: kernels from the archive, launches, graphs and events.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/driver_memory.hpp"
#include "runtime/kernel_archive.hpp"
#include "runtime/library_host.hpp"
#include "runtime/memory_budget.hpp"
#include "runtime/pinned_pages.hpp"
#include "runtime/side_copies.hpp"
#include "runtime/side_launches.hpp"
#include "runtime/window_host.hpp"

namespace rocm_sd {
namespace {

class DriverGraph final : public GpuGraph {
 public:
  DriverGraph(GpuDriver& driver, void* graph) : driver_(driver), graph_(graph) {}
  ~DriverGraph() override {
    try {  // not every driver keeps a graph that still runs
      driver_.make_current();
      driver_.synchronize();
    } catch (const Error& error) {
      log().warn("{}", error.what());
    }
    driver_.destroy_graph(graph_);
  }
  void replay() override {
    driver_.make_current();
    driver_.launch_graph_async(graph_);
  }

 private:
  GpuDriver& driver_;
  void* graph_;
};

class DriverEvent final : public GpuEvent {
 public:
  explicit DriverEvent(GpuDriver& driver) : driver_(driver), event_(driver.create_event()) {}
  ~DriverEvent() override { driver_.destroy_event(event_); }
  void record() override {
    driver_.make_current();
    driver_.record_event(event_);
  }
  double milliseconds_since(const GpuEvent& earlier) override {
    driver_.make_current();
    driver_.wait_event(event_);  // the earlier one has passed by then: one stream
    return driver_.milliseconds(static_cast<const DriverEvent&>(earlier).event_, event_);
  }

 private:
  GpuDriver& driver_;
  void* event_;
};

// A line of pinned memory for a few bytes, with an event behind their copy.
struct ReadLane {
  void *data = nullptr, *event = nullptr;
};

class DriverRead final : public PendingRead {
 public:
  DriverRead(GpuDriver& driver, std::vector<ReadLane>& free_lanes, ReadLane lane, size_t bytes)
      : driver_(driver), free_lanes_(free_lanes), lane_(lane), bytes_(bytes) {}
  ~DriverRead() override {
    try {
      driver_.make_current();
      driver_.wait_event(lane_.event);  // before another copy goes to the lane
    } catch (const Error& error) {
      log().warn("{}", error.what());
    }
    free_lanes_.push_back(lane_);
  }
  void get(void* dst) override {
    driver_.make_current();
    driver_.wait_event(lane_.event);
    std::memcpy(dst, lane_.data, bytes_);
  }

 private:
  GpuDriver& driver_;
  std::vector<ReadLane>& free_lanes_;
  const ReadLane lane_;
  const size_t bytes_;
};

struct LoadedKernel : GpuKernel {
  ArchivedKernel archived;
  uint32_t allowed_lds = 0;  // dynamic LDS that launches were allowed so far
};

// The kernels of one device, loaded object by object when one of them is first asked for.
class KernelTable {
 public:
  explicit KernelTable(GpuDriver& driver) : driver_(driver) {
    for (const std::string& target : driver.description().targets)
      if (const auto path = find_kernel_archive(target)) {
        archive_ = std::make_unique<KernelArchive>(*path);
        require<FormatError>(archive_->target() == target, printable_path(*path), ": holds code for ",
                             archive_->target());
        modules_.resize(archive_->objects().size());
        return;
      }
  }
  ~KernelTable() {
    for (void* module : modules_)
      if (module) driver_.unload_module(module);
  }

  const KernelArchive* archive() const { return archive_.get(); }

  LoadedKernel* find(std::string_view name) {
    const GpuDescription& gpu = driver_.description();
    if (!archive_) {
      std::string there;
      for (const std::string& target : archived_targets()) there += (there.empty() ? "" : ", ") + target;
      throw DeviceError(concat(gpu.device, " (", gpu.product, ") is ", gpu.traits.arch,
                               ", for which no kernels were built: no kernels_", gpu.traits.arch,
                               ".rsk; there are archives for ", there.empty() ? "no target" : there,
                               " (ROCM_SD_KERNELS names another folder, ROCM_SD_ARCHS what is built)"));
    }
    const std::lock_guard lock(mutex_);
    if (const auto found = kernels_.find(name); found != kernels_.end()) return &found->second;
    const auto archived = archive_->kernels().find(name);
    if (archived == archive_->kernels().end()) return nullptr;
    const ArchivedObject& object = archive_->objects()[archived->second.object];
    void*& module = modules_[archived->second.object];
    if (!module) {
      log().debug("{}: loading {}", gpu.device, object.name);
      module = driver_.load_module(archive_->read(object));
    }
    LoadedKernel kernel;
    kernel.name = name;
    kernel.function = driver_.function(module, kernel.name);
    kernel.archived = archived->second;
    return &kernels_.emplace(kernel.name, std::move(kernel)).first->second;
  }

 private:
  GpuDriver& driver_;
  std::unique_ptr<KernelArchive> archive_;
  std::mutex mutex_;
  std::vector<void*> modules_;                                // one per object; null: not loaded yet
  std::map<std::string, LoadedKernel, std::less<>> kernels_;  // nodes stay where they are
};

class DriverGpu final : public GpuDevice,
                        public LibraryHost,
                        public SideCopies,
                        public SideLaunches,
                        public WindowHost,
                        public MemoryBudget {
 public:
  explicit DriverGpu(std::unique_ptr<GpuDriver> driver)
      : driver_(std::move(driver)),
        traits_(driver_->description().traits),
        kernels_(current()),
        pool_(*driver_),
        staging_(*driver_),
        pinned_pages_(*driver_) {
    if (kernels_.archive()) traits_.arch = kernels_.archive()->target();
    const GpuDescription& gpu = driver_->description();
    name_ = fmt::format("{}: {}, {}, {} compute_units, {:.1f} GiB", gpu.device, gpu.product, gpu.traits.arch,
                        traits_.compute_units, static_cast<double>(gpu.memory_bytes) / (1 << 30));
    const char* sync = std::getenv("ROCM_SD_SYNC");
    synchronous_ = sync && std::string_view(sync) == "1";
  }
  ~DriverGpu() override {
    try {
      current().synchronize();
      forget_kept();
      for (const ReadLane& lane : read_lanes_) {
        driver_->destroy_event(lane.event);
        driver_->free_pinned(lane.data);
      }
    } catch (const Error& error) {
      log().warn("{}", error.what());
    }
  }

  DeviceKind kind() const override { return driver_->description().kind; }
  std::string name() const override { return name_; }  // asked for by each op of an eager caller
  const GpuTraits& traits() const override { return traits_; }
  DType preferred_dtype() const override { return DType::kF16; }

  MemoryInfo memory() const override {
    MemoryInfo memory = current().memory();
    memory.free += pool_.cached();
    return memory;
  }
  uint64_t allocated() const override { return pool_.allocated(); }
  uint64_t peak_allocated() const override { return pool_.peak_allocated(); }
  void reset_peak() override { pool_.reset_peak(); }
  uint64_t room() const override { return pool_.room(); }
  void set_budget(uint64_t bytes) override {
    current();
    pool_.set_budget(bytes);
  }
  void* allocate(size_t bytes) override {
    refuse_capture("allocate");
    current();
    return pool_.allocate(bytes);
  }
  void free(void* data, size_t bytes) noexcept override {
    try {
      current();
    } catch (const Error& error) {  // a lost device has freed everything
      log().warn("{}", error.what());
      return;
    }
    if (capturing_)
      freed_while_capturing_.push_back({data, bytes});  // drivers refuse it until the capture ends
    else
      pool_.free(data, bytes);
  }

  void* allocate_mapped(size_t bytes) override { return current().allocate_pinned(bytes); }
  void free_mapped(void* data) noexcept override {
    try {
      synchronize();  // kernels may still read it
      driver_->free_pinned(data);
    } catch (const Error& error) {
      log().warn("{}", error.what());
    }
  }

  void* allocate_window(size_t bytes) override {
    refuse_capture("allocate_window");
    return current().allocate_window(bytes);
  }
  void free_window(void* data) noexcept override {
    freed(data, [this](void* of) { driver_->free(of); });
  }
  void* allocate_host_window(size_t bytes) override {
    refuse_capture("allocate_host_window");
    return current().allocate_coherent(bytes);
  }
  void free_host_window(void* data) noexcept override {
    freed(data, [this](void* of) { driver_->free_pinned(of); });
  }
  std::string reach(WindowHost& other) override {
    auto* gpu = dynamic_cast<DriverGpu*>(&other);
    if (!gpu || gpu->kind() != kind()) return "they have different drivers";
    return current().reach(*gpu->driver_);
  }
  void admit(const void* data, size_t bytes) override { driver_->admit(data, bytes); }
  void forget(const void* data) noexcept override { driver_->forget(data); }
  bool capturing() const override { return capturing_; }

  void copy_to_device(void* dst, const void* src, size_t bytes) override {
    refuse_capture("copy_to_device");
    current();
    staging_.to_device(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
  }
  void copy_to_host(void* dst, const void* src, size_t bytes) override {
    refuse_capture("copy_to_host");
    current();
    staging_.to_host(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
  }
  std::unique_ptr<PendingRead> read_later(const void* src, size_t bytes) override {
    refuse_capture("read_later");
    require<InternalError>(bytes <= kReadLaterBytes, "read_later: ", bytes, " bytes, at most ",
                           kReadLaterBytes);
    current();
    if (read_lanes_.empty()) {
      void* data = driver_->allocate_pinned(kReadLaterBytes);
      if (!data) return GpuDevice::read_later(src, bytes);
      read_lanes_.push_back({data, driver_->create_event()});
    }
    driver_->copy_to_host_async(read_lanes_.back().data, src, bytes);
    driver_->record_event(read_lanes_.back().event);
    auto read = std::make_unique<DriverRead>(*driver_, read_lanes_, read_lanes_.back(), bytes);
    read_lanes_.pop_back();
    return read;
  }
  void copy_on_device(void* dst, const void* src, size_t bytes) override {
    if (bytes > 0) current().copy_on_device_async(dst, src, bytes);
  }
  void admit_any_content(const void* data, size_t bytes) override {
    current().admit_any_content(data, bytes);
  }
  void fill_zero(void* data, size_t bytes) override {
    if (bytes > 0) current().fill_zero_async(data, bytes);
  }
  void synchronize() override {
    refuse_capture("synchronize");
    current().synchronize();
  }

  const GpuKernel* find_kernel(std::string_view name) override {
    current();
    return kernels_.find(name);
  }
  void launch(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes, const void* params,
              size_t bytes) override {
    const LoadedKernel& loaded = ready(kernel, grid, lds_bytes, bytes);
    naming(kernel, grid, threads, lds_bytes, [&] {
      driver_->launch_async(loaded.function, grid, threads, lds_bytes, params, bytes);
      if (synchronous_ && !capturing_) driver_->synchronize();
    });
  }
  void launch_on(void* stream, const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                 const void* params, size_t bytes) override {
    const LoadedKernel& loaded = ready(kernel, grid, lds_bytes, bytes);
    naming(kernel, grid, threads, lds_bytes,
           [&] { driver_->launch_on(stream, loaded.function, grid, threads, lds_bytes, params, bytes); });
  }
  void synchronize_stream(void* stream) override { current().synchronize_stream(stream); }
  void* thread_context() override { return driver_->thread_context(); }
  void restore_thread_context(void* context) noexcept override { driver_->restore_thread_context(context); }

  void* library_stream() override { return current().stream(); }
  bool hosts_libraries() const override { return kind() == DeviceKind::kHip || kind() == DeviceKind::kCuda; }

  void map_boxes(void* map, const MatrixBoxes& boxes) override { current().map_boxes(map, boxes); }
  void map_boxes(void* map, const HeadBoxes& boxes) override { current().map_boxes(map, boxes); }
  void map_boxes(void* map, const ImageBoxes& boxes) override { current().map_boxes(map, boxes); }

  void begin_capture() override {
    refuse_capture("begin_capture");
    current().begin_capture();
    capturing_ = true;
  }
  std::unique_ptr<GpuGraph> end_capture() override {
    require<InternalError>(capturing_, "end_capture: no capture has begun");
    capturing_ = false;
    std::string problem;
    void* graph = current().end_capture(problem);
    for (const auto& [data, bytes] : std::exchange(freed_while_capturing_, {})) pool_.free(data, bytes);
    if (graph) return std::make_unique<DriverGraph>(*driver_, graph);
    log().warn("{}: no graph could be made of the launches: {}", driver_->description().device, problem);
    return nullptr;
  }
  std::unique_ptr<GpuEvent> make_event() override { return std::make_unique<DriverEvent>(current()); }

  std::shared_ptr<void> make_point() override {
    return {current().create_event(), [this](void* event) {
              try {
                current().destroy_event(event);
              } catch (const Error& error) {
                log().warn("{}", error.what());
              }
            }};
  }
  void mark_launches(void* point) override { current().record_event(point); }
  void mark_copies(void* point) override { current().record_copies(point); }
  void copies_wait(void* point) override { current().copies_wait(point); }
  void launches_wait(void* point) override { current().launches_wait(point); }
  void begin_beside(void* point) override { current().begin_beside(point); }
  void end_beside() noexcept override { driver_->end_beside(); }
  void* allocate_host(size_t bytes) override {
    refuse_capture("allocate_host");
    current();
    return pinned_pages_.allocate(bytes);
  }
  void free_host(void* data) noexcept override {
    freed(data, [this](void* of) {
      if (!capturing_) driver_->synchronize();  // what waits for copies of it
      pinned_pages_.free(of);
    });
  }
  void copy_beside(void* dst, const void* src, size_t bytes) override {
    if (bytes > 0) current().copy_beside_async(dst, src, bytes);
  }
  void wait_for_copies() override {
    refuse_capture("wait_for_copies");
    current().synchronize_copies();
  }
  void copy_made(void* dst, size_t bytes, const std::function<void(char*)>& make) override {
    refuse_capture("copy_made");
    current();
    staging_.made_to_device(static_cast<char*>(dst), bytes, make);
  }

 private:
  GpuDriver& current() const {
    driver_->make_current();
    return *driver_;
  }
  template <class Free>
  void freed(void* data, const Free& free_it) noexcept {
    try {
      current();
      free_it(data);
    } catch (const Error& error) {  // a lost device has freed everything
      log().warn("{}", error.what());
    }
  }
  void refuse_capture(const char* call) const {
    require<InternalError>(!capturing_, call, ": not between begin_capture and end_capture");
  }
  // The kernel, checked and allowed its LDS, with the device current. find_kernel alone makes kernels, so
  // each is a LoadedKernel of this device.
  const LoadedKernel& ready(const GpuKernel& kernel, GpuGrid grid, uint32_t lds_bytes, size_t bytes) {
    auto& loaded = const_cast<LoadedKernel&>(static_cast<const LoadedKernel&>(kernel));
    check_launch(loaded, grid, lds_bytes, bytes);
    current();
    const std::atomic_ref allowed(loaded.allowed_lds);
    if (lds_bytes > allowed.load()) {
      const std::lock_guard lock(allowing_);
      if (lds_bytes > allowed.load()) {
        driver_->allow_lds(loaded.function, lds_bytes);
        allowed.store(lds_bytes);
      }
    }
    return loaded;
  }
  // Runs `start`; an error of it says which launch it was.
  template <class Start>
  static void naming(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                     const Start& start) {
    try {
      start();
    } catch (const DeviceError& error) {
      throw DeviceError(fmt::format("{} (kernel {}, {}x{}x{} groups of {} threads, {} bytes of LDS)",
                                    error.what(), kernel.name, grid.x, grid.y, grid.z, threads, lds_bytes));
    }
  }
  // A struct that the host and the kernel understand differently must not reach the device.
  void check_launch(const LoadedKernel& kernel, GpuGrid grid, uint32_t lds_bytes, size_t bytes) const {
    const bool fits = traits_.family == GpuFamily::kNvidia ? bytes == kernel.archived.params
                                                           : bytes <= kernel.archived.params;
    require<InternalError>(fits, kernel.name, ": takes ", kernel.archived.params,
                           " bytes of parameters, launched with ", bytes);
    require<InternalError>(grid.x > 0 && grid.y > 0 && grid.z > 0, kernel.name,
                           ": launched with an empty grid (", grid.x, " x ", grid.y, " x ", grid.z, ")");
    require<InternalError>(grid.cluster >= 1 && grid.cluster <= traits_.cluster && grid.x % grid.cluster == 0,
                           kernel.name, ": ", grid.x, " groups launched in clusters of ", grid.cluster, ", ",
                           traits_.arch, " takes whole clusters of up to ", traits_.cluster);
    require<InternalError>(lds_bytes <= traits_.lds_per_group, kernel.name, ": launched with ", lds_bytes,
                           " bytes of LDS, ", traits_.arch, " has ", traits_.lds_per_group);
  }

  std::unique_ptr<GpuDriver> driver_;
  GpuTraits traits_;
  std::string name_;
  KernelTable kernels_;
  MemoryPool pool_;
  Staging staging_;
  PinnedPages pinned_pages_;
  std::vector<ReadLane> read_lanes_;  // that nobody uses
  bool capturing_ = false;
  std::vector<std::pair<void*, size_t>> freed_while_capturing_;
  bool synchronous_ = false;
  std::mutex allowing_;
};

}  // namespace

void GpuDevice::launch_on(void*, const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                          const void* params, size_t bytes) {
  launch(kernel, grid, threads, lds_bytes, params, bytes);
}
void GpuDevice::synchronize_stream(void*) { synchronize(); }

SideLaunches* side_launches(Device& device) {
  return device.kind() == DeviceKind::kHost ? nullptr : dynamic_cast<SideLaunches*>(&device);
}
SideCopies* side_copies(Device& device) {
  return device.kind() == DeviceKind::kHost ? nullptr : dynamic_cast<SideCopies*>(&device);
}

MemoryBudget* memory_budget(Device& device) { return dynamic_cast<MemoryBudget*>(&device); }

LibraryHost* library_host(Device& device) {
  auto* host = dynamic_cast<LibraryHost*>(&device);
  return host && host->hosts_libraries() ? host : nullptr;
}
WindowHost* window_host(Device& device) { return dynamic_cast<WindowHost*>(&device); }

std::shared_ptr<void> LibraryHost::kept(const std::string& key,
                                        const std::function<std::shared_ptr<void>()>& make) {
  const std::lock_guard lock(keeping_);
  std::shared_ptr<void>& found = kept_[key];
  if (!found) found = make();
  return found;
}
void GpuDevice::map_boxes(void*, const MatrixBoxes&) {
  throw DeviceError(concat(name(), ": has no TMA (tensor memory accelerator) for boxes of a matrix"));
}
void GpuDevice::map_boxes(void*, const HeadBoxes&) {
  throw DeviceError(concat(name(), ": has no TMA (tensor memory accelerator) for boxes of heads"));
}
void GpuDevice::map_boxes(void*, const ImageBoxes&) {
  throw DeviceError(concat(name(), ": has no TMA (tensor memory accelerator) for boxes of an image"));
}
void GpuDriver::map_boxes(void*, const MatrixBoxes&) {
  throw DeviceError(concat(description().device, ": its driver maps no matrices for TMA"));
}
void GpuDriver::map_boxes(void*, const HeadBoxes&) {
  throw DeviceError(concat(description().device, ": its driver maps no heads for TMA"));
}
void GpuDriver::map_boxes(void*, const ImageBoxes&) {
  throw DeviceError(concat(description().device, ": its driver maps no images for TMA"));
}

std::string gpu_call_failed(const GpuDescription& gpu, std::string_view call, std::string_view reason) {
  call = call.substr(0, call.find('('));
  if (const size_t dot = call.rfind('.'); dot != std::string_view::npos) call.remove_prefix(dot + 1);
  return concat(gpu.device, " (", gpu.product, "): ", call, ": ", reason);
}

std::unique_ptr<GpuDevice> make_gpu_device(std::unique_ptr<GpuDriver> driver) {
  return std::make_unique<DriverGpu>(std::move(driver));
}

}  // namespace rocm_sd
