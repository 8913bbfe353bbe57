// What the doctor's tests ask of its findings.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "doctor/diagnose.hpp"

namespace rocm_sd::doctor {

// The one finding on the subject, with its cost and its fix.
inline Finding only_finding(const std::vector<Finding>& findings, const std::string& subject) {
  std::vector<Finding> hits;
  for (const Finding& f : findings)
    if (f.subject == subject) hits.push_back(f);
  EXPECT_EQ(hits.size(), 1u) << subject;
  if (hits.empty()) return {};
  EXPECT_FALSE(hits[0].what.empty() || hits[0].cost.empty() || hits[0].fix.empty());
  return hits[0];
}

}  // namespace rocm_sd::doctor
