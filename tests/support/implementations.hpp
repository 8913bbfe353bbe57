// Helpers of op tests: run an op under one named implementation, and prove that a planned and captured
// forward gives the same bits.
#pragma once

#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

// The types that an implementation of an op on activations takes: the host's vector loops know no f16.
inline std::vector<DType> activation_types(const std::string& impl) {
  if (impl == "host") return {DType::kF32, DType::kBF16};
  return {DType::kF32, DType::kBF16, DType::kF16};
}

// Runs body under the implementation; a refusal skips the test and shows the sentence.
template <class Body>
void with_implementation(const char* op, const std::string& impl, const Body& body) {
  const ForcedImpl forced(op, impl);
  try {
    body();
  } catch (const UsageError& e) {
    const std::string message = e.what();
    if (message.find("no implementation takes it") == std::string::npos) throw;
    ASSERT_EQ(message.find("there is no implementation named"), std::string::npos) << message;
    GTEST_SKIP() << message;
  }
}

inline std::vector<char> bytes_of(const Tensor& tensor) {
  std::vector<char> bytes(tensor.bytes());
  if (!bytes.empty()) host_device().copy_to_host(bytes.data(), tensor.data(), bytes.size());
  return bytes;
}

// Runs op(ex) -> Tensor eagerly, planned, captured and replayed on poisoned memory: all must give the same
// bits.
template <class Op>
void expect_same_bits_when_replayed(const Op& op) {
  TestExec eager;
  const Tensor want = op(eager.ex);
  TestExec planned;
  std::vector<char> got;
  Program program("op", planned.arena, [&](Exec& ex) {
    const Tensor y = op(ex);
    if (ex.planning()) return;
    const char* data = static_cast<const char*>(y.data());
    const size_t size = y.bytes();
    ex.launch({"read", "test"}, [data, size, &got] { got.assign(data, data + size); });
  });
  program.plan();
  EXPECT_TRUE(got.empty());
  for (int round = 0; round < 2; ++round) {
    got.clear();
    program.run();
    EXPECT_EQ(got, bytes_of(want)) << (round ? "replayed" : "captured");
  }
}

// The message of the E that body throws, or a failure.
template <class E, class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another exception: " << e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace rocm_sd::testing_support
