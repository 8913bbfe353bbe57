#include "vendor/cudnn_graph.hpp"

#include <algorithm>

namespace rocm_sd::vendor::cudnn {
namespace {

// Engines that the heuristic proposes, best first; none where it knows no answer.
std::vector<Part> proposed(const Library& library, const Graph& graph, int mode, int most) {
  Descriptor heuristics(library, Cudnn::kHeuristics);
  heuristics.set(Cudnn::kHeurGraph, graph.descriptor()).set(Cudnn::kHeurMode, Cudnn::kTypeHeurMode, mode);
  if (!heuristics.try_finalize()) return {};
  // Some will not finalize: more are asked for than are wanted.
  std::vector<Part> out;
  std::vector<Cudnn::Descriptor> raw;
  for (int i = 0; i < 4 * most; ++i) {
    out.push_back(std::make_shared<Descriptor>(library, Cudnn::kEngineConfig));
    raw.push_back(out.back()->get());
  }
  const int64_t count = heuristics.get(Cudnn::kHeurResults, Cudnn::kTypeDescriptor,
                                       static_cast<int64_t>(raw.size()), raw.data());
  out.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(out.size()))));
  return out;
}

bool is_exact(const Library& library, const Descriptor& config, DType dtype) {
  const Descriptor engine(library, Cudnn::kEngine);
  Cudnn::Descriptor raw = engine.get();
  config.get(Cudnn::kConfigEngine, Cudnn::kTypeDescriptor, 1, &raw);
  std::array<int, Cudnn::kNoteCount> notes{};
  const int64_t count =
      std::clamp<int64_t>(engine.get(Cudnn::kEngineNotes, Cudnn::kTypeNote, Cudnn::kNoteCount, notes.data()),
                          0, Cudnn::kNoteCount);
  return std::none_of(notes.begin(), notes.begin() + count, [&](int note) {
    return note == Cudnn::kDownConverts || note == Cudnn::kReducedPrecision ||
           note == Cudnn::kNondeterministic || note == Cudnn::kWinograd ||
           (note == Cudnn::kTensorCore && dtype == DType::kF32);
  });
}

}  // namespace

Library::Library() {
  const DynamicLibrary library = open_library(kProduct);
#define ROCM_SD_LOAD(name, ...) \
  api.name = reinterpret_cast<decltype(api.name)>(find_function(library, #name));
  ROCM_SD_CUDNN_FUNCTIONS(ROCM_SD_LOAD)
  ROCM_SD_LOAD(cudnnGetErrorString)
#undef ROCM_SD_LOAD
  check(api.cudnnCreate(&handle), "cudnnCreate");
}

Part Graph::part(int kind) {
  parts_.push_back(std::make_shared<Descriptor>(library_, kind));
  return parts_.back();
}

Part Graph::tensor(int64_t id, int type, const Extents& extents, const Extents& strides, bool in_memory,
                   int64_t alignment) {
  const Part out = part(Cudnn::kTensor);
  const bool is_virtual = !in_memory;
  out->set(Cudnn::kTensorType, Cudnn::kTypeDataType, type)
      .set(Cudnn::kTensorExtents, Cudnn::kTypeInt64, 4, extents.data())
      .set(Cudnn::kTensorStrides, Cudnn::kTypeInt64, 4, strides.data())
      .set(Cudnn::kTensorId, Cudnn::kTypeInt64, id)
      .set(Cudnn::kTensorAlignment, Cudnn::kTypeInt64, alignment);
  if (is_virtual) out->set(Cudnn::kTensorVirtual, Cudnn::kTypeBool, is_virtual);
  out->finalize();
  return out;
}

Part Graph::number(int64_t id) {
  const Extents one = {1, 1, 1, 1};
  const Part out = part(Cudnn::kTensor);
  out->set(Cudnn::kTensorType, Cudnn::kTypeDataType, Cudnn::kFloat)
      .set(Cudnn::kTensorExtents, Cudnn::kTypeInt64, 4, one.data())
      .set(Cudnn::kTensorStrides, Cudnn::kTypeInt64, 4, one.data())
      .set(Cudnn::kTensorId, Cudnn::kTypeInt64, id)
      .set(Cudnn::kTensorAlignment, Cudnn::kTypeInt64, int64_t{16})
      .set(Cudnn::kTensorByValue, Cudnn::kTypeBool, true)
      .finalize();
  return out;
}

Part Graph::pointwise(int mode, const Part& x, const Part& b, const Part& y) {
  const Part what = part(Cudnn::kPointwise);
  what->set(Cudnn::kPointwiseMode, Cudnn::kTypePointwiseMode, mode)
      .set(Cudnn::kPointwisePrecision, Cudnn::kTypeDataType, Cudnn::kFloat);
  if (mode == Cudnn::kSwish) what->set(Cudnn::kSwishBeta, Cudnn::kTypeFloat, 1.0f);
  what->finalize();
  const Part out = part(Cudnn::kOperationPointwise);
  out->set(Cudnn::kOpPointwise, *what).set(Cudnn::kOpX, *x).set(Cudnn::kOpY, *y);
  if (b) out->set(Cudnn::kOpB, *b);
  out->finalize();
  return out;
}

Part Graph::matmul(const Part& a, const Part& b, const Part& c) {
  const Part what = part(Cudnn::kMatmul);
  what->set(Cudnn::kMatmulPrecision, Cudnn::kTypeDataType, Cudnn::kFloat).finalize();
  const Part out = part(Cudnn::kOperationMatmul);
  out->set(Cudnn::kMatmulA, *a)
      .set(Cudnn::kMatmulB, *b)
      .set(Cudnn::kMatmulC, *c)
      .set(Cudnn::kOpMatmul, *what)
      .finalize();
  return out;
}

Part Graph::reduction(int op, const Part& x, const Part& y) {
  const Part what = part(Cudnn::kReduction);
  what->set(Cudnn::kReductionOp, Cudnn::kTypeReductionOp, op)
      .set(Cudnn::kReductionPrecision, Cudnn::kTypeDataType, Cudnn::kFloat)
      .finalize();
  const Part out = part(Cudnn::kOperationReduction);
  out->set(Cudnn::kReductionX, *x).set(Cudnn::kReductionY, *y).set(Cudnn::kOpReduction, *what).finalize();
  return out;
}

void Graph::finish(const std::vector<Part>& operations) {
  std::vector<Cudnn::Descriptor> raw;
  for (const Part& operation : operations) raw.push_back(operation->get());
  graph_ = part(Cudnn::kGraph);
  graph_->set(Cudnn::kGraphHandle, Cudnn::kTypeHandle, library_.handle)
      .set(Cudnn::kGraphOps, Cudnn::kTypeDescriptor, static_cast<int64_t>(raw.size()), raw.data())
      .finalize();
}

std::vector<Engine> engines_for(const Library& library, const Graph& graph, DType dtype, int most) {
  std::vector<Engine> out;
  int seen = 0, inexact = 0, unplanned = 0, large = 0;
  for (const int mode : {Cudnn::kModeA, Cudnn::kModeFallback}) {
    for (const Part& config : proposed(library, graph, mode, most)) {
      if (static_cast<int>(out.size()) == most) break;
      ++seen;
      if (!is_exact(library, *config, dtype)) {
        ++inexact;
        continue;
      }
      const auto plan = std::make_shared<Descriptor>(library, Cudnn::kPlan);
      plan->set(Cudnn::kPlanHandle, Cudnn::kTypeHandle, library.handle).set(Cudnn::kPlanConfig, *config);
      if (!plan->try_finalize()) {  // proposed, but not for this problem after all
        ++unplanned;
        continue;
      }
      int64_t bytes = 0;
      plan->get(Cudnn::kPlanWorkspace, Cudnn::kTypeInt64, 1, &bytes);
      if (bytes < 0 || bytes > kMaxWorkspace) {
        ++large;
        continue;
      }
      out.push_back({config, plan, static_cast<size_t>(bytes)});
    }
    if (!out.empty()) return out;
  }
  throw LibraryError(concat(kProduct, ": has no engine for it (of ", seen, " proposed ", inexact,
                            " round, reorder or transform sums, ", unplanned, " make no plan, ", large,
                            " want too much memory)"));
}

void execute(Library& library, const Engine& engine, const std::vector<Bound>& tensors, void* workspace,
             void* stream) {
  std::vector<int64_t> ids;
  std::vector<const void*> pointers;
  for (const Bound& tensor : tensors) {
    ids.push_back(tensor.id);
    pointers.push_back(tensor.data);
  }
  const auto count = static_cast<int64_t>(ids.size());
  const std::lock_guard lock(library.mutex);
  Descriptor pack(library, Cudnn::kVariantPack);
  pack.set(Cudnn::kPackIds, Cudnn::kTypeInt64, count, ids.data())
      .set(Cudnn::kPackPointers, Cudnn::kTypePointer, count, pointers.data())
      .set(Cudnn::kPackWorkspace, Cudnn::kTypePointer, workspace)
      .finalize();
  library.check(library.api.cudnnSetStream(library.handle, stream), "cudnnSetStream");
  library.check(library.api.cudnnBackendExecute(library.handle, engine.plan->get(), pack.get()),
                "cudnnBackendExecute");
}

}  // namespace rocm_sd::vendor::cudnn
