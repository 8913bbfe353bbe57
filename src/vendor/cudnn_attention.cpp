// cuDNN's fused attention: the graph of operations that its engines know as one kernel, products around a
// softmax that is written out (NVIDIA, "cuDNN developer guide": fused flash attention forward).
#include "vendor/attention.hpp"
#include "vendor/cudnn_graph.hpp"

namespace rocm_sd::vendor {
namespace {

using cudnn::Library;
using cudnn::Part;
using cudnn::type_of;

// What the graph's tensors in memory are called.
enum Id : int64_t { kQ = 1, kK, kV, kScale, kY, kFirstVirtual };

class AttentionGraph final : public cudnn::Graph {
 public:
  AttentionGraph(const Library& library, const AttentionShape& shape) : Graph(library) {
    const AttentionShape& s = shape;
    const int type = type_of(s.dtype);
    const Extents scores = {s.batch, s.heads, s.queries, s.keys}, of_row = {s.batch, s.heads, s.queries, 1};
    // Image, head, row, column; the keys' rows and columns exchanged.
    const Part q = tensor(kQ, type, {s.batch, s.heads, s.queries, s.head_dim},
                          {s.q.image, s.head_dim, s.q.row, 1}, true);
    const Part k =
        tensor(kK, type, {s.batch, s.heads, s.head_dim, s.keys}, {s.k.image, s.head_dim, 1, s.k.row}, true);
    const Part v =
        tensor(kV, type, {s.batch, s.heads, s.keys, s.head_dim}, {s.v.image, s.head_dim, s.v.row, 1}, true);
    const int64_t width = s.heads * s.head_dim;
    const Part y = tensor(kY, type, {s.batch, s.heads, s.queries, s.head_dim},
                          {s.queries * width, s.head_dim, width, 1}, true);
    const Part product = between(scores), scaled = between(scores), most = between(of_row),
               below = between(scores), raised = between(scores), sum = between(of_row),
               log_sum = between(of_row), statistics = between(of_row);
    const Part weights = between(scores, type);  // the second product takes its operands in their type
    // The engines know the form that training needs, of which the softmax's statistics are a part, kept or
    // not.
    finish({matmul(q, k, product), pointwise(Cudnn::kMultiply, product, number(kScale), scaled),
            reduction(Cudnn::kMaximum, scaled, most), pointwise(Cudnn::kSubtract, scaled, most, below),
            pointwise(Cudnn::kExponential, below, nullptr, raised), reduction(Cudnn::kSum, raised, sum),
            pointwise(Cudnn::kLogarithm, sum, nullptr, log_sum),
            pointwise(Cudnn::kAdd, most, log_sum, statistics),
            pointwise(Cudnn::kDivide, raised, sum, weights), matmul(weights, v, y)});
  }

 private:
  // A tensor that stays in the kernel.
  Part between(const Extents& e, int type = Cudnn::kFloat) {
    return tensor(next_id_++, type, e, {e[1] * e[2] * e[3], e[2] * e[3], e[3], 1}, false);
  }
  int64_t next_id_ = kFirstVirtual;
};

class CudnnAttention final : public Attention {
 public:
  CudnnAttention(Library& library, std::shared_ptr<AttentionGraph> graph, cudnn::Engine engine)
      : library_(library), graph_(std::move(graph)), engine_(std::move(engine)) {}
  size_t workspace_bytes() const override { return engine_.workspace_bytes; }

  void run(void* stream, const AttentionOperands& o) override {
    cudnn::execute(library_, engine_, {{kQ, o.q}, {kK, o.k}, {kV, o.v}, {kScale, &o.scale}, {kY, o.y}},
                   o.workspace, stream);
  }

 private:
  Library& library_;
  std::shared_ptr<AttentionGraph> graph_;
  cudnn::Engine engine_;
};

class CudnnAttentions final : public AttentionLibrary {
 public:
  std::vector<std::shared_ptr<Attention>> prepare(const AttentionShape& shape, int most) override {
    const std::lock_guard lock(library_.mutex);
    const auto graph = std::make_shared<AttentionGraph>(library_, shape);
    std::vector<std::shared_ptr<Attention>> out;
    for (cudnn::Engine& engine : cudnn::engines_for(library_, *graph, shape.dtype, most))
      out.push_back(std::make_shared<CudnnAttention>(library_, graph, std::move(engine)));
    return out;
  }

 private:
  Library library_;
};

}  // namespace

std::shared_ptr<AttentionLibrary> open_cudnn_attention() { return std::make_shared<CudnnAttentions>(); }

}  // namespace rocm_sd::vendor
