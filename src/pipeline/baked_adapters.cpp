#include "pipeline/baked_adapters.hpp"

#include "models/store_source.hpp"

namespace rocm_sd {
namespace {

class BakedAdapters final : public ChangedWeights {
 public:
  BakedAdapters(const Checkpoint& checkpoint, const std::vector<ActiveAdapter>& adapters) {
    for (const Component component : {Component::kUnet, Component::kTextEncoder, Component::kTextEncoder2}) {
      if (const WeightStore* store = checkpoint.find(component)) {
        plain_.push_back(std::make_unique<StoreSource>(*store));
        parts_.emplace(component, std::make_unique<AdaptedSource>(*plain_.back(), component,
                                                                  adapter_uses(adapters, component)));
      }
    }
  }
  bool changes(Component component, const std::string& name) const override {
    const auto part = parts_.find(component);
    return part != parts_.end() && part->second->changes(name);
  }
  void read(Component component, const std::string& name, const Shape& shape, int64_t begin, int64_t count,
            DType dtype, void* dst) const override {
    parts_.at(component)->read_part(name, shape, begin, count, dtype, dst);
  }

 private:
  std::vector<std::unique_ptr<StoreSource>> plain_;
  std::map<Component, std::unique_ptr<AdaptedSource>> parts_;
};

}  // namespace

std::shared_ptr<const ChangedWeights> bake_adapters(const Checkpoint& checkpoint,
                                                    const std::vector<LoraUse>& uses,
                                                    const std::string& lora_dir) {
  return std::make_shared<BakedAdapters>(checkpoint, AdapterLibrary(lora_dir).open(uses, checkpoint));
}

}  // namespace rocm_sd
