// Prompts that change while a picture is drawn, in A1111's language (the web UI's wiki, "Prompt editing",
// "Alternating words", "Composable Diffusion").
//
//   [from:to:when]  from, then to   [to:when]  nothing, then to   [from::when]  from, then nothing
//   [a|b|c]         each in turn    a AND b :0.5                  several prompts, weighed
//
// when is a number of steps, or, with a point in it, a share of them. The brackets nest. What is no such
// bracket stays text, but for "|" outside of one, or a backslash before nothing: then nothing in the prompt
// is one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rocm_sd {

constexpr size_t kMaxPromptParts = 11;  // of AND

struct PromptPart {
  std::string text;
  double weight = 1;
  friend bool operator==(const PromptPart&, const PromptPart&) = default;
};

// The parts between the words AND; of each, what stands behind its last colon is its weight where it is a
// number, also where there is no AND. At least one. Throws UsageError for more than kMaxPromptParts, and for
// weights beyond +-kMaxPromptWeight.
std::vector<PromptPart> split_prompt_parts(std::string_view prompt);

class PromptSchedule {
 public:
  // Throws UsageError for more than kMaxPromptChars characters and brackets within each other more than 64
  // deep.
  explicit PromptSchedule(std::string_view prompt);

  bool changes() const { return !nodes_.empty(); }
  // The text at each of `calls` calls of the UNet, as the web UI chooses it: the first text serves calls 0 to
  // `when`, and the first of alternating words calls 0 and 1. calls: 1 or more. A text is never longer than
  // the prompt.
  std::vector<std::string> texts(int calls) const;

 private:
  struct Item {
    std::string text;
    int node = -1;  // or -1: the text
  };
  using Items = std::vector<Item>;
  struct Node {
    bool alternates = false;
    std::vector<Items> options;  // those in turn; or before and after
    double when = 0;
    bool is_share = false;  // of the calls
    int depth = 1;
    int end(int calls) const;  // the last step of `before`, at most calls
  };
  class Parser;
  int depth_of(const Items& items) const;
  std::string text_at(const Items& items, int step, int calls) const;

  std::vector<Node> nodes_;
  Items root_;
};

}  // namespace rocm_sd
