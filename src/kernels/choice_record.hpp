// What select() chose, for those who ask (explain).
#pragma once

#include <string>
#include <vector>

namespace rocm_sd {

// The choices made on this thread while alive, in order.
class ChoiceRecord {
 public:
  ChoiceRecord();
  ~ChoiceRecord();
  ChoiceRecord(const ChoiceRecord&) = delete;
  ChoiceRecord& operator=(const ChoiceRecord&) = delete;
  // "attention f32 [...] -> host (gpu: runs on a GPU only)"
  const std::vector<std::string>& lines() const { return lines_; }
  struct Choice {
    std::string op, problem, impl;  // impl: with its configuration if a table or force named one
  };
  const std::vector<Choice>& choices() const { return choices_; }

 private:
  friend void log_choice(const char*, const std::string&, const char*, const std::string&);
  std::vector<std::string> lines_;
  std::vector<Choice> choices_;
  ChoiceRecord* outer_;
};

}  // namespace rocm_sd
