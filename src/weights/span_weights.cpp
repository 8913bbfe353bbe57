#include "weights/span_weights.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/text.hpp"

namespace rocm_sd {
namespace {

constexpr size_t kNamed = 8;
constexpr int kBlocks = 6;
constexpr int64_t kMaxWidth = 512;  // of every convolution of a file, published ones have 96 at most
// Of the training images (DIV2K), 0..1, and the range that the network reads.
constexpr float kMean[3] = {0.4488f, 0.4371f, 0.4040f}, kRange = 255.0f;

std::string_view own_name(std::string_view name) {
  constexpr std::string_view kWrapper = "module.";  // DataParallel's
  return name.starts_with(kWrapper) ? name.substr(kWrapper.size()) : name;
}

// The file that the merged tensors make, with their values.
struct Merged {
  std::list<std::vector<float>> values;
  std::vector<MemoryTensor> tensors;
  std::shared_ptr<const SafetensorsFile> file;

  void add(std::string name, const Shape& shape, std::vector<float> of) {
    const std::vector<float>& kept = values.emplace_back(std::move(of));
    tensors.push_back({std::move(name), DType::kF32, shape, kept.data()});
  }
};

struct Filter {
  int64_t out = 0, in = 0;
  std::vector<float> weight, bias;  // [out,in,side,side], [out]
};

size_t at(int64_t i) { return static_cast<size_t>(i); }

class SpanReader {
 public:
  explicit SpanReader(const TensorSet& tensors)
      : what_(printable_path(tensors.path())), store_(store_of(tensors, what_)) {
    for (const auto& [name, tensor] : store_.weights()) left_.insert(name);
  }

  std::shared_ptr<Merged> read() {
    auto merged = std::make_shared<Merged>();
    if (left_.erase("no_norm") == 0) {
      std::vector<float> scale(9, 0.0f), shift(3);
      for (size_t c = 0; c < 3; ++c) {
        scale[4 * c] = kRange;
        shift[c] = -kMean[c] * kRange;
      }
      merged->add("input.weight", {3, 3, 1, 1}, std::move(scale));
      merged->add("input.bias", {3}, std::move(shift));
    }
    std::vector<std::string> convs = {"conv_1", "conv_2"};
    for (int block = 1; block <= kBlocks; ++block)
      for (int conv = 1; conv <= 3; ++conv) convs.push_back(concat("block_", block, ".c", conv, "_r"));
    for (const std::string& name : convs) put(*merged, name, three_by_three(name));
    put(*merged, "conv_cat", filter("conv_cat", 1));
    put(*merged, "upsampler.0", filter("upsampler.0", 3));
    require<FormatError>(
        left_.empty(), what_, ": ", left_.size(), left_.size() == 1 ? " tensor has" : " tensors have",
        " no place in a SPAN of ", kBlocks,
        " blocks: ", listed_names(std::vector<std::string>(left_.begin(), left_.end()), kNamed));
    merged->file = SafetensorsFile::of_memory(what_, merged->tensors);
    return merged;
  }

 private:
  static WeightStore store_of(const TensorSet& tensors, const std::string& what) {
    std::map<std::string, StoredTensor, std::less<>> weights;
    for (const TensorRef& ref : tensors.tensors()) {
      const std::string_view name = own_name(ref.entry->name);
      const bool is_new =
          weights.emplace(std::string(name), StoredTensor{.ref = ref, .shape = ref.entry->shape}).second;
      require<FormatError>(is_new, what, ": two tensors claim to be ", printable(name));
    }
    return {Component::kVae, concat("upscaler of ", what), tensors.files(), std::move(weights)};
  }

  std::vector<float> values(const std::string& name, const Shape& shape) {
    std::vector<float> out(at(shape.numel()));
    store_.read(name, shape, DType::kF32, out.data());
    left_.erase(name);
    return out;
  }

  // A convolution as it stands in the file.
  Filter filter(const std::string& name, int64_t side) {
    const std::string weight = concat(name, ".weight");
    const Shape& shape = store_.shape(weight);
    require<FormatError>(shape.rank() == 4 && shape[2] == side && shape[3] == side &&
                             std::min(shape[0], shape[1]) > 0 && std::max(shape[0], shape[1]) <= kMaxWidth,
                         what_, ": ", printable(weight), ": expected [1..", kMaxWidth, ",1..", kMaxWidth, ",",
                         side, ",", side, "], got ", shape);
    return {shape[0], shape[1], values(weight, shape), values(concat(name, ".bias"), {shape[0]})};
  }
  Filter filter(const std::string& name, int64_t side, int64_t in) {
    Filter out = filter(name, side);
    require<FormatError>(out.in == in, what_, ": ", printable(name), ".weight: expected ", in,
                         " input channels, got ", out.in);
    return out;
  }

  Filter three_by_three(const std::string& name) {
    const bool trained = store_.has(concat(name, ".conv.1.weight"));
    if (!trained) return filter(concat(name, ".eval_conv"), 3);
    for (const char* leaf : {".eval_conv.weight", ".eval_conv.bias"}) left_.erase(concat(name, leaf));
    const Filter shortcut = filter(concat(name, ".sk"), 1);
    const Filter first = filter(concat(name, ".conv.0"), 1, shortcut.in);
    const Filter middle = filter(concat(name, ".conv.1"), 3, first.out);
    const Filter last = filter(concat(name, ".conv.2"), 1, middle.out);
    require<FormatError>(last.out == shortcut.out, what_, ": ", printable(name), ".conv.2.weight: expected ",
                         shortcut.out, " output channels as ", printable(name), ".sk has, got ", last.out);
    return merge(first, middle, last, shortcut);
  }

  // last(middle(first(x))) + shortcut(x) as one filter. first's bias is there outside the image, too.
  static Filter merge(const Filter& first, const Filter& middle, const Filter& last, const Filter& shortcut) {
    const int64_t in = first.in, out = last.out, taps = 9;
    std::vector<double> inner(at(middle.out * in * taps), 0.0), bias(middle.bias.begin(), middle.bias.end());
    for (int64_t m = 0; m < middle.out; ++m)
      for (int64_t f = 0; f < first.out; ++f)
        for (int64_t t = 0; t < taps; ++t) {
          const double w = static_cast<double>(middle.weight[at((m * first.out + f) * taps + t)]);
          bias[at(m)] += w * static_cast<double>(first.bias[at(f)]);
          for (int64_t i = 0; i < in; ++i)
            inner[at((m * in + i) * taps + t)] += w * static_cast<double>(first.weight[at(f * in + i)]);
        }
    Filter result{out, in, std::vector<float>(at(out * in * taps)), std::vector<float>(at(out))};
    std::vector<double> row(at(in * taps));
    for (int64_t o = 0; o < out; ++o) {
      std::ranges::fill(row, 0.0);
      double sum = static_cast<double>(last.bias[at(o)]) + static_cast<double>(shortcut.bias[at(o)]);
      for (int64_t m = 0; m < middle.out; ++m) {
        const double w = static_cast<double>(last.weight[at(o * middle.out + m)]);
        sum += w * bias[at(m)];
        for (int64_t k = 0; k < in * taps; ++k) row[at(k)] += w * inner[at(m * in * taps + k)];
      }
      for (int64_t i = 0; i < in; ++i)
        row[at(i * taps + 4)] += static_cast<double>(shortcut.weight[at(o * in + i)]);
      for (int64_t k = 0; k < in * taps; ++k)
        result.weight[at(o * in * taps + k)] = static_cast<float>(row[at(k)]);
      result.bias[at(o)] = static_cast<float>(sum);
    }
    return result;
  }

  void put(Merged& merged, const std::string& name, Filter filter) {
    // What is not finite in the file is not finite here: named by the layer, whose parts are no longer known.
    const auto side = static_cast<int64_t>(std::llround(
        std::sqrt(static_cast<double>(filter.weight.size()) / static_cast<double>(filter.out * filter.in))));
    merged.add(concat(name, ".weight"), {filter.out, filter.in, side, side}, std::move(filter.weight));
    merged.add(concat(name, ".bias"), {filter.out}, std::move(filter.bias));
  }

  std::string what_;
  WeightStore store_;
  std::set<std::string> left_;  // tensors of the file that have no place so far
};

}  // namespace

bool is_span(const TensorSet& tensors) {
  bool block = false, cat = false;
  for (const TensorRef& ref : tensors.tensors()) {
    const std::string_view name = own_name(ref.entry->name);
    block |= name.starts_with("block_1.c1_r.");
    cat |= name.starts_with("conv_cat.");
  }
  return block && cat;
}

WeightStore span_of(const TensorSet& tensors) {
  const std::shared_ptr<Merged> merged = SpanReader(tensors).read();
  const std::shared_ptr<const SafetensorsFile> file(merged, merged->file.get());  // keeps the values, too
  std::map<std::string, StoredTensor, std::less<>> weights;
  for (const TensorEntry& entry : file->entries())
    weights.emplace(entry.name, StoredTensor{.ref = {file.get(), &entry}, .shape = entry.shape});
  return {
      Component::kVae, concat("upscaler of ", printable_path(tensors.path())), {file}, std::move(weights)};
}

}  // namespace rocm_sd
