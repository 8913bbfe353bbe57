// Kernels of one operation each (kernels/one_operation.inc): their inputs, and running them lane by lane.
#pragma once

#include <bit>
#include <cmath>
#include <limits>

#include "unit_tests/emulator/kernel_test.hpp"

namespace rocm_sd::emu {

constexpr uint32_t kUntouched = 0x11111111;

struct In {
  uint32_t v[8];
  float f(int i) const { return std::bit_cast<float>(v[i]); }
  int32_t s(int i) const { return static_cast<int32_t>(v[i]); }
};
struct Out {
  uint32_t v[4];
  float f(int i) const { return std::bit_cast<float>(v[i]); }
};
inline uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }

// The builds name each target twice (O1, O3); assembly has one form.
inline std::vector<Build> assembled() {
  std::vector<Build> out;
  for (Build b : builds())
    if (b.level == "O1") out.push_back({b.target, "s"});
  return out;
}

class OperationTest : public KernelTest {
 protected:
  const char* object = "operations";  // the assembly file

  // v[2:3] are floats, v[4:9] integers: every pair of edge values, by a lane each.
  std::vector<In> inputs() {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> floats = {0.0f,    -0.0f, 1.0f,  -1.5f,  0.4999f,         2.5f,      -3.75f,
                                       inf,     -inf,  nan,   1e-40f, -1e-44f,         65519.f,   65520.f,
                                       70000.f, 3e9f,  -3e9f, 5e9f,   0x1.fffffep127f, 0x1p-126f, 6e-8f,
                                       255.5f};
    const std::vector<uint32_t> ints = {0,       1,          0xffffffff, 0x80000000, 0x7fffffff, 31,
                                        32,      33,         63,         64,         0xffff,     0x8000,
                                        0x10000, 0x3c004000, 0xc0037bff, 12,         0x0102030d};
    std::vector<In> out;
    for (size_t i = 0; i < floats.size(); ++i)
      for (size_t j = 0; j < floats.size(); ++j) {
        const size_t k = out.size();
        out.push_back(
            {{bits(floats[i]), bits(floats[j]), ints[k % ints.size()], ints[k / ints.size() % ints.size()],
              ints[(k * 7 + 3) % ints.size()], ints[(k * 5 + 1) % ints.size()], 0, 0}});
      }
    out.resize(out.size() / 64 * 64);
    return out;
  }
  // Runs the kernel on 64 inputs a group and compares each lane by `check(in, out, lane)`.
  template <class Check>
  void run(const char* kernel, Check check) {
    const CodeObject code = load(object);
    const std::vector<In> all = inputs();
    for (size_t first = 0; first < all.size(); first += 64) {
      const std::vector<In> some(all.begin() + static_cast<long>(first),
                                 all.begin() + static_cast<long>(first + 64));
      struct {
        const In* in;
        Out* out;
      } p{upload(some), poisoned<Out>(64)};
      launch(code, kernel, {{1, 1, 1}, {64, 1, 1}}, p);
      for (int lane = 0; lane < 64; ++lane) {
        check(some[static_cast<size_t>(lane)], p.out[lane], lane);
        if (HasFatalFailure()) return;
      }
    }
  }
  bool gfx9() const { return gpu.target().gfx9; }
};

// Equal as floats: any NaN equals any other, zeros differ by sign.
#define EXPECT_FLOAT(got, want)                                                                     \
  do {                                                                                              \
    const float g = (got), w = (want);                                                              \
    ASSERT_TRUE(std::isnan(w) ? std::isnan(g) : bits(g) == bits(w))                                 \
        << "got " << g << " want " << w << " of " << in.f(0) << ", " << in.f(1) << ", " << std::hex \
        << in.v[2] << ", " << in.v[3];                                                              \
  } while (false)
#define EXPECT_BITS(got, want)                                                                        \
  ASSERT_EQ(static_cast<uint32_t>(got), static_cast<uint32_t>(want))                                  \
      << "of " << in.f(0) << ", " << in.f(1) << ", " << in.v[2] << ", " << in.v[3] << ", " << in.v[4] \
      << " lane " << lane

}  // namespace rocm_sd::emu
