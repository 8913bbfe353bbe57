// Text that messages are made of.
#include "base/text.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace rocm_sd {
namespace {

TEST(ListedNames, NamesSomeAndCountsTheRest) {
  const std::vector<std::string> names = {"a", "b\n", "c"};
  EXPECT_EQ(listed_names({}, 2), "");
  EXPECT_EQ(listed_names(names, 3), "a, b\\x0a, c");
  EXPECT_EQ(listed_names(names, 2), "a, b\\x0a and 1 more");
  EXPECT_EQ(listed_names(std::vector<std::string>{"a"}, 1), "a");
}

}  // namespace
}  // namespace rocm_sd
