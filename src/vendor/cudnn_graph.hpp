// What cuDNN's convolutions and attention share: descriptors that own what they describe, graphs of
// operations, and the engines that the library proposes for a graph (NVIDIA, "cuDNN backend API").
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "vendor/cudnn_api.hpp"
#include "vendor/library.hpp"

namespace rocm_sd::vendor::cudnn {

inline constexpr const char* kProduct = "cuDNN";
// Plans that ask for more are left out.
inline constexpr int64_t kMaxWorkspace = int64_t{256} << 20;

inline int type_of(DType dtype) {
  return dtype == DType::kF32 ? Cudnn::kFloat : dtype == DType::kF16 ? Cudnn::kHalf : Cudnn::kBfloat16;
}

// The functions, and a handle on the device that was current when it was opened.
struct Library {
  Library();  // throws LibraryError
  ~Library() { api.cudnnDestroy(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Cudnn::Api api;
  Cudnn::Handle handle = nullptr;
  std::mutex mutex;  // the handle has one stream

  void check(Cudnn::Status status, const char* call) const {
    if (status != Cudnn::kSuccess)
      throw_failed(kProduct, call, concat(api.cudnnGetErrorString(status), " (", status, ")"));
  }
};

// One backend descriptor, owned.
class Descriptor {
 public:
  Descriptor(const Library& library, int kind) : library_(library) {
    library_.check(library_.api.cudnnBackendCreateDescriptor(kind, &descriptor_),
                   "cudnnBackendCreateDescriptor");
  }
  ~Descriptor() { library_.api.cudnnBackendDestroyDescriptor(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  Descriptor& set(int name, int type, int64_t count, const void* values) {
    library_.check(library_.api.cudnnBackendSetAttribute(descriptor_, name, type, count, values),
                   "cudnnBackendSetAttribute");
    return *this;
  }
  template <class T>
  Descriptor& set(int name, int type, const T& value) {
    return set(name, type, 1, &value);
  }
  Descriptor& set(int name, const Descriptor& part) {
    return set(name, Cudnn::kTypeDescriptor, 1, &part.descriptor_);
  }
  Descriptor& finalize() {
    library_.check(library_.api.cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
    return *this;
  }
  bool try_finalize() { return library_.api.cudnnBackendFinalize(descriptor_) == Cudnn::kSuccess; }
  // The number of values written, at most asked.
  int64_t get(int name, int type, int64_t asked, void* to) const {
    int64_t count = 0;
    library_.check(library_.api.cudnnBackendGetAttribute(descriptor_, name, type, asked, &count, to),
                   "cudnnBackendGetAttribute");
    return count;
  }
  Cudnn::Descriptor get() const { return descriptor_; }

 private:
  const Library& library_;
  Cudnn::Descriptor descriptor_ = nullptr;
};
using Part = std::shared_ptr<Descriptor>;

// The operations of one problem, finalized.
class Graph {
 public:
  using Extents = std::array<int64_t, 4>;

  const Descriptor& descriptor() const { return *graph_; }

 protected:
  explicit Graph(const Library& library) : library_(library) {}
  Part part(int kind);
  // Extents and strides in the order N C H W, as cuDNN names them: of attention, image, head, row, column.
  Part tensor(int64_t id, int type, const Extents& extents, const Extents& strides, bool in_memory,
              int64_t alignment = 16);
  Part number(int64_t id);  // a float that a run gives by its value
  // b: the second operand, or null.
  Part pointwise(int mode, const Part& x, const Part& b, const Part& y);
  Part matmul(const Part& a, const Part& b, const Part& c);
  Part reduction(int op, const Part& x, const Part& y);  // over what y has one of
  void finish(const std::vector<Part>& operations);

  const Library& library_;

 private:
  std::vector<Part> parts_;  // what operations and graph refer to
  Part graph_;
};

// An engine that takes a graph, with its plan.
struct Engine {
  Part config, plan;
  size_t workspace_bytes = 0;
};
// Those that the library proposes, best first, at most `most`, that sum in float and give the same bits every
// time. With operands of float the matrix units would round them to 10 bits: they are left out. Throws
// LibraryError where none is left, with what became of those proposed.
std::vector<Engine> engines_for(const Library& library, const Graph& graph, DType dtype, int most);

// A tensor's memory: the device's, or the host's for a number.
struct Bound {
  int64_t id;
  const void* data;
};
// Puts the plan's work on the stream. Thread-safe.
void execute(Library& library, const Engine& engine, const std::vector<Bound>& tensors, void* workspace,
             void* stream);

}  // namespace rocm_sd::vendor::cudnn
