// Stage: a part of the pipeline at work for requests of one shape. It has persistent inputs and outputs, and
// between them programs that are planned once and replayed for every request of the shape.
#pragma once

#include <memory>
#include <vector>

#include "pipeline/part.hpp"
#include "runtime/exec.hpp"

namespace rocm_sd {

// Who watches a run. Both may be null.
struct RunWatch {
  Profiler* profiler = nullptr;
  const CancelCheck* cancel = nullptr;
};

// Thrown by a stage whose result has values that are not finite.
struct NotFinite {
  const char* model = "";  // "VAE decoder"
  int64_t count = 0, of = 0;
};

class Stage {
 public:
  // arena: of the planned forwards; must outlive the stage.
  Stage(Part part, Arena& arena) : part_(part), arena_(arena) {}
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  Part part() const { return part_; }
  virtual DType dtype() const = 0;               // that the part's weights were loaded as
  virtual std::vector<Program*> programs() = 0;  // all that are planned ahead
  virtual uint64_t buffer_bytes() const = 0;     // of the persistent tensors

  // Dry runs of the programs that have had none -> bytes of the arena that the largest program needs.
  size_t plan();
  bool planned();
  // After the weights have moved: what was planned and captured with them is planned anew.
  virtual void replan();

 protected:
  Arena& arena() const { return arena_; }
  Device& device() const { return arena_.device(); }
  // Ops at once, outside of any program.
  Exec eager(const RunWatch& watch = {}) const;
  // Throws NotFinite where any of the tensors has such values.
  void require_finite(Exec& ex, const char* model, std::initializer_list<const Tensor*> tensors) const;

 private:
  Part part_;
  Arena& arena_;
};

// Values of x that are NaN or infinite.
int64_t nonfinite_values(Exec& ex, const Tensor& x);
// The same, of which get(&count) tells when it has been counted.
std::unique_ptr<PendingRead> nonfinite_values_later(Exec& ex, const Tensor& x);

uint64_t bytes_of(std::initializer_list<const Tensor*> tensors);  // empty ones are counted as 0

}  // namespace rocm_sd
