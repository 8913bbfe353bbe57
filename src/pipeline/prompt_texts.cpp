#include "pipeline/prompt_texts.hpp"

#include <algorithm>
#include <span>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "pipeline/regions.hpp"
#include "text/prompt.hpp"

namespace rocm_sd {
namespace {

void warn_once(std::vector<std::string>& warnings, std::string text) {
  if (std::find(warnings.begin(), warnings.end(), text) == warnings.end())
    warnings.push_back(std::move(text));
}

// Tags are taken out, so that they are not drawn as words. LoRAs of the prompt are at work by then
// (adapters.hpp); what has no effect is named.
// where: what of the request it is, if LoRAs are not looked for there.
void warn_of_tags(const std::string& prompt, const char* where, std::vector<std::string>& warnings) {
  const PromptTags tags = extract_lora_tags(prompt);
  if (where)
    for (const LoraTag& lora : tags.loras)
      warn_once(warnings, concat("<lora:", printable(lora.name), "> has no effect in ", where,
                                 ": put it into the prompt"));
  for (const std::string& tag : tags.unknown)
    warn_once(warnings,
              concat("<", printable(tag),
                     "> in the prompt has no effect: of tags in angle brackets only <lora:...> is known"));
}

std::string without_tags(const GenerateRequest& request, const std::string& prompt) {
  return request.plain_prompt ? sanitize_utf8(prompt) : extract_lora_tags(prompt).text;
}

// A prompt's text at each call, one where it stays the same.
std::vector<std::string> texts_of_calls(const GenerateRequest& request, const std::string& text, int calls) {
  if (request.plain_prompt) return {text};
  const PromptSchedule schedule(text);
  return schedule.texts(schedule.changes() ? calls : 1);
}

class Collector {
 public:
  Collector(const ResolvedRequest& resolved, PromptTexts& out) : resolved_(resolved), out_(out) {}

  // The index of each call's text, of one prompt as both encoders read it.
  std::vector<int64_t> add(const std::string& first, const std::string& second, bool negative,
                           int64_t image) {
    const GenerateRequest& request = resolved_.request;
    const auto firsts = texts_of_calls(request, first, resolved_.text_calls);
    const auto seconds = texts_of_calls(request, second, resolved_.text_calls);
    std::vector<int64_t> out;
    for (size_t call = 0; call < std::max(firsts.size(), seconds.size()); ++call)
      out.push_back(index_of({firsts[std::min(call, firsts.size() - 1)],
                              seconds[std::min(call, seconds.size() - 1)], negative, image}));
    return out;
  }

 private:
  int64_t index_of(PromptText text) {
    const auto same = [&](const PromptText& known) {
      return known.negative == text.negative && known.image == text.image && known.first == text.first &&
             known.second == text.second;
    };
    const auto found = std::find_if(out_.texts.begin(), out_.texts.end(), same);
    if (found != out_.texts.end()) return found - out_.texts.begin();
    require<UsageError>(out_.texts.size() < kMaxPromptTexts,
                        "prompt: its editing and alternating words come to "
                        "more than ",
                        kMaxPromptTexts, " texts");
    out_.texts.push_back(std::move(text));
    return static_cast<int64_t>(out_.texts.size()) - 1;
  }

  const ResolvedRequest& resolved_;
  PromptTexts& out_;
};

}  // namespace

std::vector<PromptPart> prompt_parts(const GenerateRequest& request, const std::string& prompt) {
  const std::string text = without_tags(request, prompt);
  if (request.plain_prompt) return {{text, 1}};
  return split_prompt_parts(text);
}

namespace {

// The prompts of regions are conditions of their own. prompt_2 is that of the whole picture's prompt.
void add_regions(Collector& collector, const ResolvedRequest& resolved, const std::string& prompt,
                 int64_t image, std::vector<std::vector<std::vector<int64_t>>>& columns) {
  const GenerateRequest& request = resolved.request;
  auto condition = columns.begin() + resolved.first_part();
  bool whole = resolved.region_base_part;
  for (const std::string& text : region_prompts(resolved, prompt)) {
    const std::vector<PromptPart> parts = prompt_parts(request, text);
    require<UsageError>(parts.size() == 1, "region: \"", printable(text, 40), "\": not with AND");
    const bool other = whole && request.prompt_2 && !request.prompt_2->empty();
    const std::string second = other ? without_tags(request, *request.prompt_2) : parts[0].text;
    whole = false;
    (condition++)->push_back(collector.add(parts[0].text, second, false, image));
  }
}

// Of every image the first one that is drawn with the same LoRAs.
std::vector<int64_t> adapter_images(const GenerateRequest& request, size_t images) {
  std::vector<std::vector<LoraUse>> lists;
  std::vector<int64_t> out;
  for (size_t i = 0; i < images; ++i) {
    lists.push_back(requested_loras(request, i));
    out.push_back(std::find(lists.begin(), lists.end(), lists.back()) - lists.begin());
  }
  return out;
}

}  // namespace

PromptTexts prompt_texts(const ResolvedRequest& resolved) {
  const GenerateRequest& request = resolved.request;
  const std::span<const std::string> prompts = image_prompts(request);
  const std::vector<int64_t> adapters = adapter_images(request, prompts.size());
  const std::string negative = image_negative(request, 0);
  const auto second = [](const std::optional<std::string>& own, const std::string& first) {
    return own && !own->empty() ? *own : first;
  };
  const auto negative_2 = [&](const std::string& first) { return second(request.negative_prompt_2, first); };
  PromptTexts out;
  if (!request.plain_prompt) {
    for (const std::string& text : {negative, negative_2(negative)})
      warn_of_tags(text, "the negative prompt", out.warnings);
    for (const std::string& text : request.negative_prompts)
      warn_of_tags(text, "the negative prompt", out.warnings);
    for (const std::string& text : prompts) warn_of_tags(text, nullptr, out.warnings);
    if (request.prompt_2) warn_of_tags(*request.prompt_2, nullptr, out.warnings);
  }
  Collector collector(resolved, out);
  // [conditions][images][calls]
  std::vector<std::vector<std::vector<int64_t>>> columns(static_cast<size_t>(resolved.conditions));
  // One text serves all images where neither prompts nor negative ones are given for each.
  const size_t images = std::max(prompts.size(), request.negative_prompts.size());
  const auto prompt_of = [&](size_t image) { return prompts.size() == 1 ? 0 : image; };
  if (resolved.uses_negative())
    for (size_t i = 0; i < images; ++i) {
      const std::string own = image_negative(request, i);
      const auto column = collector.add(without_tags(request, own), without_tags(request, negative_2(own)),
                                        true, adapters[prompt_of(i)]);
      for (int c = 0; c < resolved.first_part(); ++c) columns[static_cast<size_t>(c)].push_back(column);
    }
  const bool regional = !resolved.region_shares.empty();
  if (regional && !request.plain_prompt)
    for (const RegionUse& region : request.regions)
      warn_of_tags(region.prompt, "a region's prompt", out.warnings);
  for (size_t i = 0; i < images; ++i) {
    const std::string& prompt = prompts[prompt_of(i)];
    const int64_t adapter = adapters[prompt_of(i)];
    if (regional) {
      add_regions(collector, resolved, prompt, adapter, columns);
      continue;
    }
    const std::vector<PromptPart> firsts = prompt_parts(request, prompt);
    const std::vector<PromptPart> seconds = prompt_parts(request, second(request.prompt_2, prompt));
    const bool same = std::ranges::equal(firsts, resolved.part_weights, {}, &PromptPart::weight);
    require<UsageError>(same, "image-prompt: its parts joined by AND and their weights are not those of the ",
                        "first prompt, which has ", resolved.part_weights.size());
    require<UsageError>(seconds.size() == firsts.size() || seconds.size() == 1, "prompt-2: ", seconds.size(),
                        " parts joined by AND; expected ", firsts.size(), " as the prompt has, or one");
    auto condition = columns.begin() + resolved.first_part();
    for (size_t p = 0; p < firsts.size(); ++p)
      (condition++)
          ->push_back(
              collector.add(firsts[p].text, seconds[seconds.size() == 1 ? 0 : p].text, false, adapter));
    if (resolved.perturbed) condition->push_back(std::prev(condition)->back());
  }
  size_t calls = 1;
  for (const auto& condition : columns)
    for (const auto& column : condition) calls = std::max(calls, column.size());
  for (size_t call = 0; call < calls; ++call) {
    std::vector<int64_t>& row = out.calls.emplace_back();
    for (const auto& condition : columns)
      for (const auto& column : condition) row.push_back(column[std::min(call, column.size() - 1)]);
  }
  return out;
}

}  // namespace rocm_sd
