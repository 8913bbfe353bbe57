// Names of the UNet in CompVis/Stability single files (ldm/modules/diffusionmodules/openaimodel.py,
// UNetModel).
#include <algorithm>
#include <set>

#include "base/format.hpp"
#include "weights/name_map.hpp"

namespace rocm_sd {
namespace {

struct Rename {
  std::string_view from, to;
};

constexpr Rename kTopLevel[] = {
    {"time_embed.0", "time_embedding.linear_1"},
    {"time_embed.2", "time_embedding.linear_2"},
    {"label_emb.0.0", "add_embedding.linear_1"},
    {"label_emb.0.2", "add_embedding.linear_2"},
    {"input_blocks.0.0", "conv_in"},
    {"out.0", "conv_norm_out"},
    {"out.2", "conv_out"},
};

constexpr Rename kResnet[] = {
    {"in_layers.0", "norm1"},  {"in_layers.2", "conv1"},  {"emb_layers.1", "time_emb_proj"},
    {"out_layers.0", "norm2"}, {"out_layers.3", "conv2"}, {"skip_connection", "conv_shortcut"},
};

// What a numbered child of a block is, judged by the names below it.
enum class Child { kResnet, kAttention, kDownsample, kUpsample };
using Children = std::map<int, Child>;

std::optional<Child> child_of(std::string_view rest) {
  for (const std::string_view part : {"in_layers.", "out_layers.", "emb_layers.", "skip_connection."})
    if (rest.starts_with(part)) return Child::kResnet;
  for (const std::string_view part : {"transformer_blocks.", "proj_in.", "proj_out.", "norm."})
    if (rest.starts_with(part)) return Child::kAttention;
  if (rest.starts_with("op.")) return Child::kDownsample;
  if (rest.starts_with("conv.")) return Child::kUpsample;
  return std::nullopt;
}

std::string numbered_name(std::string_view block, int level, std::string_view list, int index) {
  return fmt::format("{}.{}.{}.{}", block, level, list, index);
}

// The modules of one side, block after block; `ends(number, children)` says where a level ends.
template <class Ends>
void name_blocks(const std::map<int, Children>& blocks, std::string_view ldm, std::string_view diffusers,
                 std::map<std::string, std::string, std::less<>>& modules, const Ends& ends) {
  int level = 0, layer = 0;
  for (const auto& [number, children] : blocks) {
    for (const auto& [position, kind] : children) {
      std::string& name = modules[fmt::format("{}.{}.{}", ldm, number, position)];
      switch (kind) {
        case Child::kResnet: name = numbered_name(diffusers, level, "resnets", layer); break;
        case Child::kAttention: name = numbered_name(diffusers, level, "attentions", layer); break;
        case Child::kDownsample: name = numbered_name(diffusers, level, "downsamplers", 0); break;
        case Child::kUpsample: name = numbered_name(diffusers, level, "upsamplers", 0); break;
      }
    }
    const bool level_ends = ends(number, children);
    if (level_ends) ++level;
    layer = level_ends ? 0 : layer + 1;
  }
}

bool holds(const Children& children, Child wanted) {
  return std::any_of(children.begin(), children.end(),
                     [&](const auto& child) { return child.second == wanted; });
}

// Numbers from `first` to the highest that have nothing.
void note_gaps(const auto& numbers, int first, const std::string& head, std::vector<std::string>& gaps) {
  for (const auto& [number, value] : numbers)
    for (; first <= number; ++first)
      if (first < number) gaps.push_back(fmt::format("{}{}", head, first));
}

// Where the levels of the way up end, finest last. An upsampler ends a level; where one is missing, the
// residual blocks of the way down say how many blocks each level has: one more.
std::set<int> level_ends(const std::map<int, Children>& input, const std::map<int, Children>& output) {
  std::vector<int> resnets = {0};
  for (const auto& [number, children] : input)
    if (holds(children, Child::kDownsample))
      resnets.push_back(0);
    else
      resnets.back() += holds(children, Child::kResnet) ? 1 : 0;
  std::set<int> by_upsampler, by_count;
  for (const auto& [number, children] : output)
    if (holds(children, Child::kUpsample)) by_upsampler.insert(number);
  if (by_upsampler.size() + 1 == resnets.size()) return by_upsampler;
  int last = -1;
  for (size_t level = resnets.size(); level-- > 1;) by_count.insert(last += resnets[level] + 1);
  return by_count;
}

}  // namespace

std::optional<Numbered> numbered(std::string_view name, std::string_view head) {
  if (!name.starts_with(head)) return std::nullopt;
  name.remove_prefix(head.size());
  size_t digits = 0;
  int number = 0;
  while (digits < name.size() && digits < 4 && name[digits] >= '0' && name[digits] <= '9')
    number = number * 10 + (name[digits++] - '0');
  const bool canonical = digits == 1 || (digits > 1 && name[0] != '0');
  if (!canonical || (digits < name.size() && name[digits] != '.')) return std::nullopt;
  return Numbered{number, name.substr(std::min(digits + 1, name.size()))};
}

LdmUnetNames::LdmUnetNames(std::span<const NamedTensor> tensors) {
  std::map<int, Children> input, output;
  Children middle;
  const auto note = [](Children& children, std::string_view rest) {
    if (const auto child = numbered(rest, ""))
      if (const auto kind = child_of(child->rest)) children[child->number] = *kind;
  };
  for (const NamedTensor& tensor : tensors) {
    // Input block 0 is the first convolution.
    if (const auto block = numbered(tensor.name, "input_blocks."); block && block->number > 0)
      note(input[block->number], block->rest);
    if (const auto block = numbered(tensor.name, "output_blocks.")) note(output[block->number], block->rest);
    if (tensor.name.starts_with("middle_block.")) note(middle, tensor.name.substr(13));
  }
  note_gaps(input, 1, "input_blocks.", gaps_);
  note_gaps(output, 0, "output_blocks.", gaps_);
  note_gaps(middle, 0, "middle_block.", gaps_);
  for (const auto& [name, blocks] : {std::pair("input_blocks", &input), {"output_blocks", &output}})
    for (const auto& [number, children] : *blocks)
      note_gaps(children, 0, fmt::format("{}.{}.", name, number), gaps_);
  name_blocks(input, "input_blocks", "down_blocks", modules_,
              [](int, const Children& children) { return holds(children, Child::kDownsample); });
  name_blocks(
      output, "output_blocks", "up_blocks", modules_,
      [ends = level_ends(input, output)](int number, const Children&) { return ends.contains(number); });
  int resnets = 0, attentions = 0;
  for (const auto& [position, kind] : middle) {
    std::string& name = modules_[fmt::format("middle_block.{}", position)];
    if (kind == Child::kResnet) name = fmt::format("mid_block.resnets.{}", resnets++);
    if (kind == Child::kAttention) name = fmt::format("mid_block.attentions.{}", attentions++);
  }
}

std::optional<std::string> LdmUnetNames::canonical(std::string_view name) const {
  for (const Rename& row : kTopLevel)
    if (name.starts_with(row.from) && name.substr(row.from.size()).starts_with('.'))
      return std::string(row.to).append(name.substr(row.from.size()));
  // The module is the name up to its second number, or up to the first in the middle block.
  size_t end = name.find('.');
  for (int dots = name.starts_with("middle_block.") ? 1 : 2; dots > 0 && end != name.npos; --dots)
    end = name.find('.', end + 1);
  if (end == name.npos) return std::nullopt;
  const auto module = modules_.find(name.substr(0, end));
  if (module == modules_.end()) return std::nullopt;
  std::string_view rest = name.substr(end + 1);
  const std::string& to = module->second;
  if (to.find(".attentions.") != to.npos) return to + '.' + std::string(rest);
  if (to.find(".resnets.") != to.npos) {
    for (const Rename& row : kResnet)
      if (rest.starts_with(row.from) && rest.substr(row.from.size()).starts_with('.'))
        return fmt::format("{}.{}{}", to, row.to, rest.substr(row.from.size()));
    return std::nullopt;
  }
  if (rest.starts_with("op."))
    rest.remove_prefix(3);
  else if (rest.starts_with("conv."))
    rest.remove_prefix(5);
  else
    return std::nullopt;
  return fmt::format("{}.conv.{}", to, rest);
}

}  // namespace rocm_sd
