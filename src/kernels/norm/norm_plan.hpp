// How the GPU's group norm (and its scalar form) cuts a problem into workgroups.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "composable_kernels/hopper/group_norm_resident.hpp"
#include "kernels/norm/norm_impl.hpp"
#include "runtime/gpu.hpp"

namespace rocm_sd {

struct GroupNormPlan {
  int vec = 1;             // channels that a thread takes at once
  int whole_threads = 0;   // threads of the kernel that keeps a whole group in registers; 0: in parts
  int cluster_packs = 0;   // packs of a thread of the kernel that keeps a slab in a cluster; 0: another
  int resident_packs = 0;  // packs of a thread kept in LDS where all workgroups wait for each other; 0: no
  int64_t slab = 0;        // in parts or clusters: channels of a workgroup
  int64_t part = 0, parts = 0;    // measured: pixels of a workgroup, parts of an image
  int64_t piece = 0, pieces = 0;  // normalised; pieces is the size of a cluster
  bool merge = false;             // the parts are merged by a kernel of their own

  std::string describe() const;
};

// Channels of a workgroup that measures packs of `vec` channels: whole groups and whole packs; zero if there
// is no such slab.
int64_t group_norm_slab(int64_t channels, int64_t groups, int vec);

// Nothing unless the kernels cannot take the problem, else why not.
Refusal refuse_group_norm(const GroupNormProblem& p);

// The plan without tuning for a device of these traits; p has elements.
GroupNormPlan default_group_norm(const GroupNormProblem& p, const GpuTraits& device);
// Every plan worth measuring, the default first.
std::vector<GroupNormPlan> group_norm_candidates(const GroupNormProblem& p, const GpuTraits& device);
// Those that keep a slab in the registers of up to `cluster` workgroups.
std::vector<GroupNormPlan> group_norm_clusters(const GroupNormProblem& p, uint32_t cluster);

// The one whose workgroups run at once, in so many parts of an image, with so many packs of a thread in LDS
// (zero: what the device has, all that there are); nothing where it cannot be.
std::optional<GroupNormPlan> group_norm_resident(const GroupNormProblem& p, const GpuTraits& device,
                                                 int64_t parts = 0, int packs = 0);
// Bytes of dynamic LDS that a workgroup of that plan asks for.
int64_t resident_bytes(const GroupNormProblem& p, const GroupNormPlan& plan);

// The ways of the implementation "gpu" by GroupNormPlan::describe().
extern const Configs<GroupNormProblem> kGroupNormConfigs;

// Launches that plan of a problem with elements on a GPU Exec.
void run_group_norm_plan(Exec& ex, const GroupNormProblem& problem, const GroupNormPlan& plan);

// The kernels' argument. partial: [images, parts, groups, 2]; merged: [images, groups, 2].
template <class T>
GroupNormParams<T> group_norm_params(const GroupNormProblem& p, const GroupNormPlan& plan, float* partial,
                                     float* merged) {
  const auto small = [](int64_t x) { return static_cast<int32_t>(x); };
  return {.x = static_cast<const T*>(p.x),
          .second = static_cast<const T*>(p.second),
          .gain = p.gain,
          .bias = p.bias,
          .y = static_cast<T*>(p.y),
          .partial = partial,
          .merged = merged,
          .images = small(p.images),
          .pixels = small(p.pixels),
          .channels = small(p.channels),
          .first = small(p.first_channels()),
          .groups = small(p.groups),
          .slab = small(plan.slab),
          .parts = small(plan.parts),
          .part = small(plan.part),
          .pieces = small(plan.pieces),
          .piece = small(plan.piece),
          .eps = p.eps,
          .silu = p.silu,
          .to_bf16 = p.to_bf16};
}

}  // namespace rocm_sd
