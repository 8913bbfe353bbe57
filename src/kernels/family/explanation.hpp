// What a choice of a GPU's kernel was made from: `rocm-sd bench --explain`.
#pragma once

#include <string>
#include <vector>

#include "kernels/family/cost_model.hpp"

namespace rocm_sd {

struct ExplainedCandidate {
  std::string choice;     // as select.hpp names it after the implementation: "128x160x32/2"
  std::string algorithm;  // of the map's row
  std::string reason;     // the row's
  std::string source;     // where the numbers of the estimate come from
  std::string cost_name;  // of attention: of its relative cost in share/cost
  int rank = 0;           // of the row: the least that a problem has is taken
  double cost = 0;        // the estimate; candidates of one rank are compared by it
};

struct Explanation {
  std::string impl;    // "gpu", "gpu_eight_bit"
  std::string family;  // "rdna3"
  std::string unit;    // of the costs
  std::vector<ExplainedCandidate> candidates;
  std::vector<std::string> refused;  // algorithms of the map that do not take the problem: what they take
};

// While alive, on this thread: implementations that list their configurations leave what these are worth.
class ExplanationRecord {
 public:
  ExplanationRecord();
  ~ExplanationRecord();
  ExplanationRecord(const ExplanationRecord&) = delete;
  ExplanationRecord& operator=(const ExplanationRecord&) = delete;

  const std::vector<Explanation>& explanations() const { return explanations_; }
  void add(Explanation explanation) { explanations_.push_back(std::move(explanation)); }
  static ExplanationRecord* current();  // or null

 private:
  std::vector<Explanation> explanations_;
  ExplanationRecord* outer_;
};

// "measured on an NVIDIA H200, driver 580.159.04, 2026-11-21, commit 2de115f", "modelled", "guessed".
std::string to_text(const CostSource& source);
// Of a name in the model's sources.
std::string source_text(const CostModel& model, const std::string& name);

}  // namespace rocm_sd
