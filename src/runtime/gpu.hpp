// GpuDevice: a Device that launches kernels by name from an archive of code compiled ahead of time.
// hip.cpp and cuda.cpp find the driver's library when the program runs; the emulator implements the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/gpu_family.hpp"
#include "runtime/device.hpp"

namespace rocm_sd {

struct GpuTraits {
  std::string arch;  // "gfx1100", "sm_90": the archive's target
  GpuFamily family = GpuFamily::kNvidia;
  int lanes = 32;               // of a wave
  int compute_units = 1;        // as the driver counts: on RDNA work-group processors of two, on NVIDIA SMs
  size_t lds_per_group = 0;     // most bytes of LDS (shared memory) that one workgroup may ask for
  size_t l2_bytes = 0;          // of the last cache before memory
  bool integrated = false;      // shares the host's memory
  uint32_t cluster = 1;         // most workgroups that may read each other's LDS
  bool tma = false;             // map_boxes() works, for kernels that fetch boxes of matrices and images
  bool samples_groups = false;  // runs some of a launch's workgroups only, for a model of its time
  std::string pci;              // "0000:1b:00.0"; "": on no bus, as an emulated GPU, or not told
};

// A kernel that the device loaded; lives as long as the device.
struct GpuKernel {
  std::string name;
  void* function = nullptr;  // the driver's handle
};

struct GpuGrid {
  uint32_t x = 1, y = 1, z = 1;  // workgroups
  uint32_t cluster = 1;          // neighbours along x that read each other's LDS; divides x
  // The kernel reads its weights, or a text's keys and values, before those ahead of it have ended: they were
  // there before those began. Only believed on the device's own stream.
  bool early = false;
  // The workgroups wait for each other: none starts before there is room for all (CUDA: a cooperative
  // launch).
  bool together = false;
};

// Launches recorded once and started together.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  virtual void replay() = 0;  // on the device's stream, does not wait
};

// A point on the device's stream.
class GpuEvent {
 public:
  virtual ~GpuEvent() = default;
  virtual void record() = 0;
  virtual double milliseconds_since(const GpuEvent& earlier) = 0;  // waits for both
};

// A matrix of 16-bit elements as TMA fetches it: boxes [box_rows, 64 columns] in the 128-byte
// swizzle.
struct MatrixBoxes {
  const void* data = nullptr;                        // aligned to 16 bytes
  uint64_t rows = 0, columns = 0, stride_bytes = 0;  // from row to row, a multiple of 16
  uint32_t box_rows = 0;                             // at most 256
  // Of every 32 rows, row 8t + 2j + e (t, j < 4) lies at row 8j + 2t + e of the box, so that the matrix
  // unit's layout deals each lane neighbouring rows. rows and box_rows are then multiples of 32.
  bool permuted = false;
};

// Rows [images, rows, heads * head_dim] of 16-bit elements as TMA fetches them: boxes [box_rows, 64
// channels of one head] in the 128-byte swizzle, zeros beyond the head and the image's rows.
struct HeadBoxes {
  const void* data = nullptr;  // aligned to 16 bytes
  uint64_t images = 0, rows = 0, heads = 0, head_dim = 0;
  uint64_t image_bytes = 0, row_bytes = 0;  // from one to the next, multiples of 16; so is a head's size
  uint32_t box_rows = 0;                    // at most 256
};

// Images [batch, height, width, channels] of 16-bit elements, dense, as TMA gathers their pixels:
// boxes of box_pixels pixels by 64 channels. Pixels are counted over a window that goes from first (row,
// column) of each image to last beyond its end, in steps of stride. With box_columns, boxes are so many
// columns by rows by images by 64 channels from any pixel on, every stride-th in both directions; first, last
// and box_pixels are not used.
struct ImageBoxes {
  const void* data = nullptr;  // aligned to 16 bytes
  uint64_t batch = 0, height = 0, width = 0, channels = 0;
  uint64_t pitch = 0;       // elements from pixel to pixel; 0: channels
  uint32_t box_pixels = 0;  // at most 1024
  uint32_t stride = 1;      // at most 8
  int first[2] = {0, 0}, last[2] = {0, 0};
  uint32_t box_columns = 0, box_rows = 0, box_images = 0;  // the first two times stride at most 256
};

// One stream per device: launches and copies run in the order in which they were asked for. Copies between
// host and device have finished when they return. Driver errors are thrown as DeviceError (a lost device,
// naming the call) or OutOfMemoryError (with the sizes).
class GpuDevice : public Device {
 public:
  virtual const GpuTraits& traits() const = 0;

  // The kernel of this name in the device's archive, loaded on first use; null if there is none.
  // Throws DeviceError where the archive has no code for this device's architecture, naming both.
  virtual const GpuKernel* find_kernel(std::string_view name) = 0;

  // Starts the kernel with one struct of `bytes` bytes as its only argument, copied before this returns.
  // threads: of a workgroup; lds_bytes: dynamic LDS beside what the kernel declares.
  virtual void launch(const GpuKernel& kernel, GpuGrid grid, uint32_t threads, uint32_t lds_bytes,
                      const void* params, size_t bytes) = 0;
  // The same on a stream of the caller's: a hipStream_t or CUstream of this device, null for its default
  // stream. May be called from several threads at once. A device without streams of the caller's runs it in
  // its own order.
  virtual void launch_on(void* stream, const GpuKernel& kernel, GpuGrid grid, uint32_t threads,
                         uint32_t lds_bytes, const void* params, size_t bytes);
  virtual void fill_zero(void* data, size_t bytes) = 0;  // on the stream
  // Kernels read these bytes whatever was left there: an emulator that checks for what nothing has written
  // lets them.
  virtual void admit_any_content(const void* /*data*/, size_t /*bytes*/) {}
  // Writes the driver's description of the matrix to `map` (128 bytes, aligned to them) as kernels with a
  // TMA take it (TensorMap in composable_kernels/types.hpp). Throws DeviceError where the driver
  // refuses.
  virtual void map_boxes(void* map, const MatrixBoxes& boxes);
  virtual void map_boxes(void* map, const HeadBoxes& boxes);
  virtual void map_boxes(void* map, const ImageBoxes& boxes);

  // Waits for what was launched on that stream so far.
  virtual void synchronize_stream(void* stream);

  // What the calling thread has made current (HIP: its device, CUDA: its context), and back to that: for
  // callers whose own work depends on it, around any other call here, each of which may change it.
  virtual void* thread_context() { return nullptr; }
  virtual void restore_thread_context(void*) noexcept {}

  // Launches between the two are recorded, not run. Allocating, waiting and copying between host and device
  // are refused there with an InternalError: what an op needs must exist before (Program in exec.hpp sees to
  // that). end_capture returns null (and the launches are lost) where the driver cannot make a graph of them;
  // the caller then goes on without.
  virtual void begin_capture() = 0;
  virtual std::unique_ptr<GpuGraph> end_capture() = 0;

  virtual std::unique_ptr<GpuEvent> make_event() = 0;
};

// Leaves the calling thread with the device or context that it had made current.
class KeepThreadContext {
 public:
  explicit KeepThreadContext(GpuDevice& device) : device_(device), before_(device.thread_context()) {}
  ~KeepThreadContext() { device_.restore_thread_context(before_); }
  KeepThreadContext(const KeepThreadContext&) = delete;
  KeepThreadContext& operator=(const KeepThreadContext&) = delete;

 private:
  GpuDevice& device_;
  void* before_;
};

}  // namespace rocm_sd
