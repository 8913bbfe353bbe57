// What select() chose, for those who ask (explain).
#pragma once

#include <string>
#include <vector>

namespace rocm_sd {

// The choices made on this thread while alive: "attention f32 [...] -> host (gpu: runs on a GPU only)".
class ChoiceRecord {
 public:
  ChoiceRecord();
  ~ChoiceRecord();
  ChoiceRecord(const ChoiceRecord&) = delete;
  ChoiceRecord& operator=(const ChoiceRecord&) = delete;
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  friend void log_choice(const char*, const std::string&, const char*, const std::string&);
  std::vector<std::string> lines_;
  ChoiceRecord* outer_;
};

}  // namespace rocm_sd
