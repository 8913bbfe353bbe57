#include "models/low_rank_terms.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/text.hpp"

namespace rocm_sd {
namespace {

// Depth of a product's step in most configurations of GPUs: zeros fill the rest.
constexpr int64_t kRankStep = 32;

const AdapterModule* module_of(const AdapterUse& use, Component component, const std::string& tensor) {
  const auto& modules = use.file->modules(component);
  const auto found = modules.find(tensor);
  return found == modules.end() ? nullptr : &found->second;
}

// A visitor that calls a function.
class EachSlot final : public Visitor {
 public:
  explicit EachSlot(std::function<void(const ParameterSlot&)> work) : work_(std::move(work)) {}

 protected:
  void slot(const ParameterSlot& slot) override { work_(slot); }

 private:
  std::function<void(const ParameterSlot&)> work_;
};

void for_each_slot(const VisitModel& visit, std::function<void(const ParameterSlot&)> work) {
  EachSlot visitor(std::move(work));
  visit(visitor);
}

// [r,in*pixels] of a LoCon: where there is a middle filter [r,r,pixels], down [r,in] through it.
std::vector<float> whole_down(const AdapterUse& use, const AdapterModule& module, int64_t columns) {
  std::vector<float> down = use.file->values(module, "down");
  if (!module.has("mid")) return down;
  const std::vector<float> mid = use.file->values(module, "mid");
  const int64_t rank = module.rank, in = static_cast<int64_t>(down.size()) / rank, pixels = columns / in;
  std::vector<float> out(static_cast<size_t>(rank * columns), 0.0f);
  for (int64_t i = 0; i < rank; ++i)
    for (int64_t j = 0; j < rank; ++j)
      for (int64_t c = 0; c < in; ++c)
        for (int64_t k = 0; k < pixels; ++k)
          out[static_cast<size_t>(i * columns + c * pixels + k)] +=
              mid[static_cast<size_t>((i * rank + j) * pixels + k)] * down[static_cast<size_t>(j * in + c)];
  return out;
}

// One adapter's columns of a layer: a module for each part of it that the adapter changes.
struct Block {
  int adapter = 0;
  int64_t rank = 0;  // of all its modules, filled up
  struct Term {
    const AdapterModule* module;
    int64_t row;       // of the layer's outputs, where the module's part begins
    const Cut* share;  // what the layer has of that part; null: all
  };
  std::vector<Term> terms;
};

class TermBuilder {
 public:
  TermBuilder(const LowRankModel& model, const std::vector<AdapterUse>& uses) : model_(model), uses_(uses) {}

  LowRankTerms operator()(const ParameterSlot& slot) const {
    const std::vector<Block> blocks = blocks_of(slot);
    if (blocks.empty()) return nullptr;
    auto out = std::make_shared<LowRank>();
    int64_t rank = 0;
    for (const Block& block : blocks) {
      rank += block.rank;
      out->step = out->step == 1 && rank == block.rank ? block.rank : std::gcd(out->step, block.rank);
    }
    for (const Block& block : blocks)
      out->columns.insert(out->columns.end(), static_cast<size_t>(block.rank / out->step), block.adapter);
    fill(slot, blocks, rank, *out);
    out->strengths = model_.strengths;
    return out;
  }

 private:
  std::vector<Block> blocks_of(const ParameterSlot& slot) const {
    const int64_t step = model_.device.kind() == DeviceKind::kHost ? 1 : kRankStep;
    std::vector<Block> out;
    for (size_t u = 0; u < uses_.size(); ++u) {
      Block block{.adapter = static_cast<int>(u)};
      int64_t row = 0;
      for (const ParameterSlot::Part& part : slot.parts) {
        if (const AdapterModule* module = module_of(uses_[u], model_.component, part.name)) {
          block.terms.push_back({module, row, part.cut.get()});
          block.rank += module->rank;
        }
        row += part.shape[0];
      }
      block.rank = (block.rank + step - 1) / step * step;
      if (!block.terms.empty()) out.push_back(std::move(block));
    }
    return out;
  }

  void fill(const ParameterSlot& slot, const std::vector<Block>& blocks, int64_t rank, LowRank& out) const {
    const int64_t rows = slot.shape[0], columns = slot.shape.numel() / rows;
    std::vector<float> down(static_cast<size_t>(rank * columns)), up(static_cast<size_t>(rows * rank));
    int64_t block_begin = 0;
    for (const Block& block : blocks) {
      const AdapterUse& use = uses_[static_cast<size_t>(block.adapter)];
      int64_t begin = block_begin;
      for (const auto& [module, row, share] : block.terms) {
        std::vector<float> own = whole_down(use, *module, share ? share->whole_columns() : columns),
                           factors = use.file->values(*module, "up");
        if (share) {
          own = cut_columns(own, *share);
          factors = cut_rows(factors, *share);
        }
        std::copy(own.begin(), own.end(), down.begin() + begin * columns);
        const auto scale = static_cast<float>(module->scale * use.blocks.of(module->block));
        const int64_t r = module->rank, count = static_cast<int64_t>(factors.size()) / r;
        float* to = up.data() + row * rank + begin;
#pragma omp parallel for
        for (int64_t i = 0; i < count; ++i)
          for (int64_t k = 0; k < r; ++k) to[i * rank + k] = scale * factors[static_cast<size_t>(i * r + k)];
        begin += r;
      }
      block_begin += block.rank;
    }
    Shape filter = slot.shape;
    filter[0] = rank;
    const DType dtype = slot.weight->dtype();
    out.down = Weight(tensor_from(model_.device, filter, down.data(), dtype));
    out.up = Weight(tensor_from(model_.device, {rows, rank}, up.data(), dtype));
  }

  const LowRankModel& model_;
  const std::vector<AdapterUse>& uses_;
};

}  // namespace

void require_low_rank(const VisitModel& visit, Component component, const std::vector<AdapterUse>& uses) {
  std::set<std::string> layers;
  for_each_slot(visit, [&](const ParameterSlot& slot) {
    if (!slot.low_rank) return;
    for (const ParameterSlot::Part& part : slot.parts) layers.insert(part.name);
  });
  for (const AdapterUse& use : uses)
    for (const auto& [target, module] : use.file->modules(component)) {
      const bool low_rank = module.kind == AdapterKind::kLora && !module.is_dora() && layers.contains(target);
      require<UsageError>(
          low_rank, "lora ", printable(use.file->path().stem().string()), ": ", printable(module.key), " is ",
          module.is_dora() ? "DoRA" : concat("a ", adapter_kind_name(module.kind), " of ", target),
          ", which cannot be added at run time: merge it (lora-mode merge)");
    }
}

void set_low_rank_terms(const VisitModel& visit, const LowRankModel& model,
                        const std::vector<AdapterUse>& uses) {
  const TermBuilder build(model, uses);
  for_each_slot(visit, [&](const ParameterSlot& slot) {
    if (slot.low_rank) *slot.low_rank = uses.empty() ? nullptr : build(slot);
  });
}

uint64_t low_rank_bytes(const VisitModel& visit) {
  uint64_t bytes = 0;
  for_each_slot(visit, [&](const ParameterSlot& slot) {
    if (slot.low_rank && *slot.low_rank) bytes += (*slot.low_rank)->bytes();
  });
  return bytes;
}

}  // namespace rocm_sd
