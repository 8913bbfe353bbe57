// LaunchRecorder: a GPU that runs nothing. Ops launch on it over memory that has addresses and no bytes, and
// what they would have launched is kept, so that it can be launched later on other addresses.
#pragma once

#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/gpu.hpp"
#include "runtime/tensor.hpp"

namespace rocm_sd::library {

// What a copy engine is to fetch, at an address of the recorder's.
using Boxes = std::variant<MatrixBoxes, ImageBoxes>;
inline const void*& data_of(Boxes& boxes) {
  return *std::visit([](auto& b) { return &b.data; }, boxes);
}

// Stands where a kernel's parameters would have a map of boxes, which only the driver can make and only of
// the address itself. The rest of the map is zero.
struct BoxesMark {
  static constexpr uint64_t kMagic = 0x626f7865735f6174;
  uint64_t magic, index;  // index: into boxes()
};
inline constexpr size_t kBoxesMapBytes = 128;

struct RecordedLaunch {
  const GpuKernel* kernel = nullptr;
  GpuGrid grid;
  uint32_t threads = 0, lds_bytes = 0;
  std::vector<std::byte> params;
};

class LaunchRecorder final : public GpuDevice {
 public:
  // base: where the addresses begin; far from anything that a parameter may be by chance is not needed, see
  // program.cpp. The GPU must outlive the recorder.
  LaunchRecorder(GpuDevice& gpu, uint64_t base) : gpu_(gpu), next_(base) {}

  struct Region {
    uint64_t begin = 0;
    size_t bytes = 0;
  };
  // In the order in which they were asked for; none is ever given back.
  const std::vector<Region>& regions() const { return regions_; }
  // The region that holds the address (or ends there), or -1.
  int region_of(uint64_t address) const;
  const std::vector<Boxes>& boxes() const { return boxes_; }
  std::vector<RecordedLaunch> take_launches() { return std::exchange(launches_, {}); }

  DeviceKind kind() const override { return gpu_.kind(); }
  std::string name() const override { return gpu_.name(); }
  MemoryInfo memory() const override { return gpu_.memory(); }
  const GpuTraits& traits() const override { return gpu_.traits(); }
  DType preferred_dtype() const override { return gpu_.preferred_dtype(); }
  const GpuKernel* find_kernel(std::string_view name) override { return gpu_.find_kernel(name); }

  void* allocate(size_t bytes) override;
  void free(void*, size_t) noexcept override {}
  void launch(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes, const void* params,
              size_t bytes) override;
  void synchronize() override {}  // nothing runs
  void map_boxes(void* map, const MatrixBoxes& boxes) override { mark(map, boxes); }
  void map_boxes(void* map, const ImageBoxes& boxes) override { mark(map, boxes); }

  // No op that the library offers does any of these; InternalError.
  void copy_to_device(void*, const void*, size_t) override { refuse("copies to the device"); }
  void copy_to_host(void*, const void*, size_t) override { refuse("copies to the host"); }
  void copy_on_device(void*, const void*, size_t) override { refuse("copies on the device"); }
  void fill_zero(void*, size_t) override { refuse("fills"); }
  void begin_capture() override { refuse("captures"); }
  std::unique_ptr<GpuGraph> end_capture() override { refuse("captures"); }
  std::unique_ptr<GpuEvent> make_event() override { refuse("events"); }

 private:
  [[noreturn]] static void refuse(const char* what);
  void mark(void* map, const Boxes& boxes);

  GpuDevice& gpu_;
  uint64_t next_;
  std::vector<Region> regions_;
  std::vector<RecordedLaunch> launches_;
  std::vector<Boxes> boxes_;
};

}  // namespace rocm_sd::library
