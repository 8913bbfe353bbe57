// Signs of the operands of matrix instructions, on every target.
#include "unit_tests/emulator/modifiers.hpp"

namespace rocm_sd::emu {
namespace {

class MatrixModifiers : public ModifiersTest {};
INSTANTIATE_TEST_SUITE_P(Assembled, MatrixModifiers, testing::ValuesIn(assembled()), build_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MatrixModifiers);  // builds without AMD targets

// ---- matrix instructions of RDNA: fragment maps as docs/emulator.md's sources state them ----

struct Wmma {
  const char* types;  // behind v_wmma_
  char element;       // f, b (bf16), 8, 4 (integers)
  int depth;
};

TEST_P(MatrixModifiers, SignsOfMatrixOperands) {
  if (gfx9()) GTEST_SKIP() << "MFMA has no such modifiers";
  const Wmma kAll[] = {{"f32_16x16x16_f16", 'f', 16},
                       {"f32_16x16x16_bf16", 'b', 16},
                       {"i32_16x16x16_iu8", '8', 16},
                       {"i32_16x16x16_iu4", '4', 16},
                       {"i32_16x16x32_iu4", '4', 32}};
  for (const Wmma& wmma : kAll) {
    if (wmma.depth == 32 && !gfx12()) continue;
    const int bits = wmma.element == '8' ? 8 : wmma.element == '4' ? 4 : 16;
    const bool is_float = bits == 16;
    const int each = gfx12() ? wmma.depth / 2 : wmma.depth;  // elements of a lane
    const int dwords_each = each * bits / 32;
    const auto range = [](int first, int count) {
      return count == 1 ? concat("v", first) : concat("v[", first, ":", first + count - 1, "]");
    };
    std::vector<Op> ops;
    for (int lo = 0; lo < 8; ++lo)
      for (int hi = 0; hi < 8; ++hi) {
        const Modifiers m{lo, hi, 0, 7};
        ops.push_back({concat("v_wmma_", wmma.types, " v[64:71], ", range(32, dwords_each), ", ",
                              range(40, dwords_each), ", v[48:55]", text_of(m, 3)),
                       m, 0});
      }
    // On gfx11 both halves of a wave hold the same A and B.
    std::vector<Lane> inputs = is_float ? small_numbers(wmma.element == 'b', 7) : dwords(7);
    for (uint32_t l = 0; l < 32; ++l)
      for (int r = 0; r < 8; ++r) {
        if (!gfx12()) inputs[l][r] = inputs[l % 16][r], inputs[l][8 + r] = inputs[l % 16][8 + r];
        const int c = static_cast<int>((l * 8 + static_cast<uint32_t>(r)) % 15) - 7;
        inputs[l][16 + r] =
            is_float ? std::bit_cast<uint32_t>(static_cast<float>(c)) : static_cast<uint32_t>(c);
      }
    // Element k of row (A) or column (B) `index`.
    const auto element = [&](const Modifiers& m, int operand, int index, int k) -> double {
      const int lane = gfx12() ? index + 16 * (k / each) : index, i = gfx12() ? k % each : k;
      const uint32_t dword =
          inputs[static_cast<size_t>(lane)][static_cast<size_t>(8 * operand + i * bits / 32)];
      const uint32_t raw = dword >> (i * bits % 32) & ((1u << bits) - 1);
      if (!is_float) {
        const bool is_signed = m.neg_lo >> operand & 1;
        return is_signed && raw >> (bits - 1) ? static_cast<double>(raw) - (1 << bits) : raw;
      }
      const double v = wmma.element == 'b' ? std::bit_cast<float>(raw << 16) : half_value(raw);
      return (i % 2 ? m.neg_hi : m.neg_lo) >> operand & 1 ? -v : v;
    };
    std::map<int, std::vector<double>> products;  // by the modifiers of A and B
    size_t lane_of_check = 0;
    const auto check = [&](const Op& op, const Lane& in, const auto& out) {
      const int lane = static_cast<int>(lane_of_check++ % 32);
      auto& ab = products[(op.m.neg_lo & 3) | (op.m.neg_hi & 3) << 2];
      if (ab.empty())
        for (int row = 0; row < 16; ++row)
          for (int col = 0; col < 16; ++col) {
            double sum = 0;
            for (int k = 0; k < wmma.depth; ++k) sum += element(op.m, 0, row, k) * element(op.m, 1, col, k);
            ab.push_back(sum);
          }
      for (int i = 0; i < 8; ++i) {
        const int row = gfx12() ? i + 8 * (lane / 16) : 2 * i + lane / 16;
        double c = is_float ? std::bit_cast<float>(in[16 + i]) : static_cast<int32_t>(in[16 + i]);
        if (is_float && op.m.neg_hi & 4) c = std::fabs(c);
        if (is_float && op.m.neg_lo & 4) c = -c;
        const double want = c + ab[static_cast<size_t>(row * 16 + lane % 16)];
        const double got = is_float ? std::bit_cast<float>(out[i]) : static_cast<int32_t>(out[i]);
        if (got != want) return fmt::format("row {}: got {}, want {}", row, got, want);
      }
      return std::string();
    };
    const size_t count = run_accepted(ops, inputs, "", check);
    EXPECT_GE(count, is_float ? 64u : 4u) << wmma.types;
  }
}

// A sparse product with a negated operand is the plain one of the negated data.
TEST_P(MatrixModifiers, SignsOfSparseOperands) {
  if (!gfx12()) GTEST_SKIP() << "only gfx12 has them";
  std::vector<std::string> cases;
  for (const char* type : {"f16", "bf16"})
    for (const auto& [modifier, mask, first, count] :
         {std::tuple{" neg_lo:[1,0,0]", "0x8000", 32, 4}, std::tuple{" neg_hi:[1,0,0]", "0x80000000", 32, 4},
          std::tuple{" neg_lo:[0,1,0]", "0x8000", 40, 8},
          std::tuple{" neg_hi:[0,1,0]", "0x80000000", 40, 8}}) {
      std::string flip, zero;
      for (int r = 0; r < count; ++r)
        flip += concat("v_xor_b32_e32 v", first + r, ", ", mask, ", v", first + r, "\n");
      for (int r = 64; r < 72; ++r) zero += concat("v_mov_b32_e32 v", r, ", 0\n");
      const std::string op = concat("v_swmmac_f32_16x16x32_", type, " v[64:71], v[32:35], v[40:47], v48");
      cases.push_back(zero + op + modifier);
      cases.push_back(zero + flip + op + "\n" + flip);
    }
  const auto results = run(cases, small_numbers(false, 8));
  for (size_t i = 0; i < cases.size(); i += 2) EXPECT_EQ(results[i], results[i + 1]) << cases[i];
}

}  // namespace
}  // namespace rocm_sd::emu
