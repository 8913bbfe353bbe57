// Scalar operations (SOP1, SOP2, SOPC, SOPK): once a wave, on Wave::sgpr.
#include "emulator/lane_math.hpp"
#include "emulator/operations.hpp"
#include "emulator/scalar_core.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

// ---- arithmetic; scc is what the ISA document says it becomes ----
constexpr auto add_u = [](u32 a, u32 b, u32& scc) {
  scc = a + b < a;
  return a + b;
};
constexpr auto sub_u = [](u32 a, u32 b, u32& scc) {
  scc = b > a;
  return a - b;
};
constexpr auto add_i = [](u32 a, u32 b, u32& scc) {
  const u32 r = a + b;
  scc = (~(a ^ b) & (a ^ r)) >> 31;
  return r;
};
constexpr auto sub_i = [](u32 a, u32 b, u32& scc) {
  const u32 r = a - b;
  scc = ((a ^ b) & (a ^ r)) >> 31;
  return r;
};
constexpr auto add_carry = [](u32 a, u32 b, u32& scc) {
  const u64 r = static_cast<u64>(a) + b + scc;
  scc = static_cast<u32>(r >> 32);
  return static_cast<u32>(r);
};
constexpr auto sub_borrow = [](u32 a, u32 b, u32& scc) {
  const u64 r = static_cast<u64>(a) - b - scc;
  scc = static_cast<u32>(r >> 32) & 1;
  return static_cast<u32>(r);
};
constexpr auto least = [](auto a, auto b, u32& scc) {
  scc = a < b;
  return a < b ? a : b;
};
constexpr auto most = [](auto a, auto b, u32& scc) {
  scc = a > b;
  return a > b ? a : b;
};
constexpr auto select = [](auto a, auto b, u32& scc) { return scc ? a : b; };
template <class T>
inline T tested(T r, u32& scc) {
  scc = r != 0;
  return r;
}
constexpr auto both = [](auto a, auto b, u32& scc) { return tested(a & b, scc); };
constexpr auto either = [](auto a, auto b, u32& scc) { return tested(a | b, scc); };
constexpr auto differ = [](auto a, auto b, u32& scc) { return tested(a ^ b, scc); };
constexpr auto nand = [](auto a, auto b, u32& scc) { return tested(~(a & b), scc); };
constexpr auto nor = [](auto a, auto b, u32& scc) { return tested(~(a | b), scc); };
constexpr auto xnor = [](auto a, auto b, u32& scc) { return tested(~(a ^ b), scc); };
constexpr auto and_not = [](auto a, auto b, u32& scc) { return tested(a & ~b, scc); };
constexpr auto or_not = [](auto a, auto b, u32& scc) { return tested(a | ~b, scc); };
constexpr auto shl = [](auto a, u32 b, u32& scc) { return tested(a << (b & (sizeof(a) * 8 - 1)), scc); };
constexpr auto shr = [](auto a, u32 b, u32& scc) { return tested(a >> (b & (sizeof(a) * 8 - 1)), scc); };
template <int kShift>
constexpr auto shl_add = [](u32 a, u32 b, u32& scc) {
  const u64 r = (static_cast<u64>(a) << kShift) + b;
  scc = r >> 32 != 0;
  return static_cast<u32>(r);
};
template <class T>
inline T field(T a, u32 control) {  // offset in bits 0..5, width in 16..22
  const u32 size = sizeof(T) * 8, offset = control & (size - 1);
  u32 width = control >> 16 & 0x7f;
  if (width == 0) return 0;
  if (width > size - offset) width = size - offset;
  using U = std::conditional_t<sizeof(T) == 8, u64, u32>;
  const U top = static_cast<U>(a) << (size - offset - width);
  return static_cast<T>(static_cast<T>(top) >> (size - width));
}
constexpr auto bfe = [](auto a, u32 b, u32& scc) { return tested(field(a, b), scc); };
constexpr auto absdiff = [](i32 a, i32 b, u32& scc) {
  const i64 d = static_cast<i64>(a) - b;
  return tested(static_cast<u32>(d < 0 ? -d : d), scc);
};

constexpr auto s16 = [](u32 k) { return static_cast<u32>(static_cast<i32>(static_cast<int16_t>(k))); };

// ---- one operand ----
constexpr auto copy = [](auto a, u32&) { return a; };
constexpr auto invert = [](auto a, u32& scc) { return tested(static_cast<decltype(a)>(~a), scc); };
constexpr auto ones = [](auto a, u32& scc) { return tested(static_cast<u32>(__builtin_popcountll(a)), scc); };
constexpr auto zeros = [](auto a, u32& scc) {
  return tested(static_cast<u32>(sizeof(a) * 8 - static_cast<size_t>(__builtin_popcountll(a))), scc);
};
constexpr auto first_one = [](u64 a, u32&) { return a ? static_cast<u32>(__builtin_ctzll(a)) : ~0u; };
constexpr auto first_zero32 = [](u32 a, u32&) { return ~a ? static_cast<u32>(__builtin_ctz(~a)) : ~0u; };
constexpr auto leading32 = [](u32 a, u32&) { return a ? static_cast<u32>(__builtin_clz(a)) : ~0u; };
constexpr auto leading64 = [](u64 a, u32&) { return a ? static_cast<u32>(__builtin_clzll(a)) : ~0u; };
constexpr auto sign_run32 = [](u32 a, u32&) {
  const u32 x = a ^ static_cast<u32>(static_cast<i32>(a) >> 31);
  return x ? static_cast<u32>(__builtin_clz(x)) : ~0u;
};
constexpr auto sign_run64 = [](u64 a, u32&) {
  const u64 x = a ^ static_cast<u64>(static_cast<i64>(a) >> 63);
  return x ? static_cast<u32>(__builtin_clzll(x)) : ~0u;
};
constexpr auto magnitude = [](i32 a, u32& scc) {
  return tested(a < 0 ? 0u - static_cast<u32>(a) : static_cast<u32>(a), scc);
};
inline u64 reverse_bits(u64 a) {
  u64 r = 0;
  for (int i = 0; i < 64; ++i) r |= (a >> i & 1) << (63 - i);
  return r;
}

// A scalar destination that the operation reads too.
void cmov32(Wave& w, const Inst& in) {
  if (w.sgpr[kScc]) w.sgpr[in.dst.reg] = scalar(w, in.src[0]);
}
void cmov64(Wave& w, const Inst& in) {
  if (w.sgpr[kScc]) put64(w, in.dst, scalar64(w, in.src[0]));
}
void cmovk(Wave& w, const Inst& in) {
  if (w.sgpr[kScc]) w.sgpr[in.dst.reg] = s16(scalar(w, in.src[0]));
}
void addk(Wave& w, const Inst& in) {
  w.sgpr[in.dst.reg] = add_i(w.sgpr[in.dst.reg], s16(scalar(w, in.src[0])), w.sgpr[kScc]);
}
void mulk(Wave& w, const Inst& in) { w.sgpr[in.dst.reg] *= s16(scalar(w, in.src[0])); }
template <bool kOn, class T>
void bitset(Wave& w, const Inst& in) {
  const u32 bit = scalar(w, in.src[0]) & (sizeof(T) * 8 - 1);
  u32& word = w.sgpr[in.dst.reg + bit / 32];
  word = kOn ? word | 1u << bit % 32 : word & ~(1u << bit % 32);
}

// ---- exec ----
template <class F, class T, bool kKeepOld>
void exec_op(Wave& w, const Inst& in) {
  const T old = sizeof(T) == 8 ? static_cast<T>(w.sgpr[kExec] | static_cast<u64>(w.sgpr[kExec + 1]) << 32)
                               : static_cast<T>(w.sgpr[kExec]);
  const T s = sizeof(T) == 8 ? static_cast<T>(scalar64(w, in.src[0])) : static_cast<T>(scalar(w, in.src[0]));
  const T next = F{}(s, old);
  w.sgpr[kExec] = static_cast<u32>(next);
  if (sizeof(T) == 8) w.sgpr[kExec + 1] = static_cast<u32>(static_cast<u64>(next) >> 32);
  w.sgpr[kScc] = next != 0;
  const T result = kKeepOld ? old : next;
  w.sgpr[in.dst.reg] = static_cast<u32>(result);
  if (sizeof(T) == 8) w.sgpr[in.dst.reg + 1] = static_cast<u32>(static_cast<u64>(result) >> 32);
}
template <class T, bool kKeepOld = true, class F>
constexpr Operation exec_entry(const char* name, F) {
  constexpr Type t = sizeof(T) == 8 ? Type::kB64 : Type::kB32;
  return {name, &exec_op<F, T, kKeepOld>, Class::kSalu, 1, 1, false, t, {t}};
}
#define EXEC_OPS(suffix, T)                                                                        \
  exec_entry<T>("s_and_saveexec_" suffix, [](T s, T e) { return s & e; }),                         \
      exec_entry<T>("s_or_saveexec_" suffix, [](T s, T e) { return s | e; }),                      \
      exec_entry<T>("s_xor_saveexec_" suffix, [](T s, T e) { return s ^ e; }),                     \
      exec_entry<T>("s_nand_saveexec_" suffix, [](T s, T e) { return static_cast<T>(~(s & e)); }), \
      exec_entry<T>("s_nor_saveexec_" suffix, [](T s, T e) { return static_cast<T>(~(s | e)); }),  \
      exec_entry<T>("s_xnor_saveexec_" suffix, [](T s, T e) { return static_cast<T>(~(s ^ e)); }), \
      exec_entry<T>("s_and_not1_saveexec_" suffix, [](T s, T e) { return s & ~e; }),               \
      exec_entry<T>("s_or_not1_saveexec_" suffix, [](T s, T e) { return s | ~e; }),                \
      exec_entry<T>("s_and_not0_saveexec_" suffix, [](T s, T e) { return ~s & e; }),               \
      exec_entry<T>("s_or_not0_saveexec_" suffix, [](T s, T e) { return ~s | e; }),                \
      exec_entry<T, false>("s_and_not0_wrexec_" suffix, [](T s, T e) { return ~s & e; }),          \
      exec_entry<T, false>("s_and_not1_wrexec_" suffix, [](T s, T e) { return s & ~e; })

// ---- comparisons ----
#define COMPARES(prefix, suffix, Ty)                                                 \
  compare_entry<Ty>(prefix "eq_" suffix, [](auto a, auto b) { return a == b; }),     \
      compare_entry<Ty>(prefix "lg_" suffix, [](auto a, auto b) { return a != b; }), \
      compare_entry<Ty>(prefix "gt_" suffix, [](auto a, auto b) { return a > b; }),  \
      compare_entry<Ty>(prefix "ge_" suffix, [](auto a, auto b) { return a >= b; }), \
      compare_entry<Ty>(prefix "lt_" suffix, [](auto a, auto b) { return a < b; }),  \
      compare_entry<Ty>(prefix "le_" suffix, [](auto a, auto b) { return a <= b; })
struct K16 {  // a signed 16-bit immediate
  using T = i32;
  static constexpr Type type = Type::kB32;
};
template <class F>
void cmpk_i(Wave& w, const Inst& in) {
  w.sgpr[kScc] = F{}(static_cast<i32>(scalar(w, in.src[0])), static_cast<i32>(s16(scalar(w, in.src[1]))));
}
template <class F>
void cmpk_u(Wave& w, const Inst& in) {
  w.sgpr[kScc] = F{}(scalar(w, in.src[0]), scalar(w, in.src[1]) & 0xffff);
}
template <class F>
constexpr Operation cmpk_entry(const char* name, bool is_signed, F) {
  return {name,
          is_signed ? &cmpk_i<F> : &cmpk_u<F>,
          Class::kSalu,
          0,
          2,
          false,
          Type::kNone,
          {Type::kB32, Type::kB32}};
}
#define CMPKS(suffix, is_signed)                                                         \
  cmpk_entry("s_cmpk_eq_" suffix, is_signed, [](auto a, auto b) { return a == b; }),     \
      cmpk_entry("s_cmpk_lg_" suffix, is_signed, [](auto a, auto b) { return a != b; }), \
      cmpk_entry("s_cmpk_gt_" suffix, is_signed, [](auto a, auto b) { return a > b; }),  \
      cmpk_entry("s_cmpk_ge_" suffix, is_signed, [](auto a, auto b) { return a >= b; }), \
      cmpk_entry("s_cmpk_lt_" suffix, is_signed, [](auto a, auto b) { return a < b; }),  \
      cmpk_entry("s_cmpk_le_" suffix, is_signed, [](auto a, auto b) { return a <= b; })

constexpr auto kS = Class::kSalu;
#define BOTH_WIDTHS(name, f) salu2<B32, B32, B32>(name "_b32", f), salu2<B64, B64, B64>(name "_b64", f)

constexpr Operation kTable[] = {
    salu2<B32, B32, B32>("s_add_u32", add_u),
    salu2<B32, B32, B32>("s_sub_u32", sub_u),
    salu2<B32, B32, B32>("s_add_i32", add_i),
    salu2<B32, B32, B32>("s_sub_i32", sub_i),
    salu2<B32, B32, B32>("s_addc_u32", add_carry),
    salu2<B32, B32, B32>("s_subb_u32", sub_borrow),
    salu2<B64, B64, B64>("s_add_nc_u64", [](u64 a, u64 b, u32&) { return a + b; }),
    salu2<B64, B64, B64>("s_sub_nc_u64", [](u64 a, u64 b, u32&) { return a - b; }),
    salu2<B64, B64, B64>("s_mul_u64", [](u64 a, u64 b, u32&) { return a * b; }),
    salu2<I32, I32, I32>("s_min_i32", least),
    salu2<I32, I32, I32>("s_max_i32", most),
    salu2<B32, B32, B32>("s_min_u32", least),
    salu2<B32, B32, B32>("s_max_u32", most),
    BOTH_WIDTHS("s_cselect", select),
    BOTH_WIDTHS("s_and", both),
    BOTH_WIDTHS("s_or", either),
    BOTH_WIDTHS("s_xor", differ),
    BOTH_WIDTHS("s_nand", nand),
    BOTH_WIDTHS("s_nor", nor),
    BOTH_WIDTHS("s_xnor", xnor),
    BOTH_WIDTHS("s_and_not1", and_not),
    BOTH_WIDTHS("s_or_not1", or_not),
    salu2<B32, B32, B32>("s_lshl_b32", shl),
    salu2<B64, B64, B32>("s_lshl_b64", shl),
    salu2<B32, B32, B32>("s_lshr_b32", shr),
    salu2<B64, B64, B32>("s_lshr_b64", shr),
    salu2<I32, I32, B32>("s_ashr_i32", shr),
    salu2<I64, I64, B32>("s_ashr_i64", shr),
    salu2<B32, B32, B32>("s_bfm_b32", [](u32 a, u32 b, u32&) { return ((1u << (a & 31)) - 1) << (b & 31); }),
    salu2<B64, B32, B32>("s_bfm_b64",
                         [](u32 a, u32 b, u32&) { return ((1ull << (a & 63)) - 1) << (b & 63); }),
    salu2<B32, B32, B32>("s_mul_i32", [](u32 a, u32 b, u32&) { return a * b; }),
    salu2<B32, B32, B32>("s_mul_hi_u32",
                         [](u32 a, u32 b, u32&) { return static_cast<u32>(static_cast<u64>(a) * b >> 32); }),
    salu2<I32, I32, I32>("s_mul_hi_i32",
                         [](i32 a, i32 b, u32&) { return static_cast<i32>(static_cast<i64>(a) * b >> 32); }),
    salu2<B32, B32, B32>("s_bfe_u32", bfe),
    salu2<I32, I32, B32>("s_bfe_i32", bfe),
    salu2<B64, B64, B32>("s_bfe_u64", bfe),
    salu2<I64, I64, B32>("s_bfe_i64", bfe),
    salu2<B32, I32, I32>("s_absdiff_i32", absdiff),
    salu2<B32, B32, B32>("s_lshl1_add_u32", shl_add<1>),
    salu2<B32, B32, B32>("s_lshl2_add_u32", shl_add<2>),
    salu2<B32, B32, B32>("s_lshl3_add_u32", shl_add<3>),
    salu2<B32, B32, B32>("s_lshl4_add_u32", shl_add<4>),
    salu2<B32, B32, B32>("s_pack_ll_b32_b16", [](u32 a, u32 b, u32&) { return (a & 0xffff) | b << 16; }),
    salu2<B32, B32, B32>("s_pack_lh_b32_b16",
                         [](u32 a, u32 b, u32&) { return (a & 0xffff) | (b & 0xffff0000); }),
    salu2<B32, B32, B32>("s_pack_hh_b32_b16", [](u32 a, u32 b, u32&) { return a >> 16 | (b & 0xffff0000); }),
    salu2<B32, B32, B32>("s_pack_hl_b32_b16", [](u32 a, u32 b, u32&) { return a >> 16 | b << 16; }),
    salu1<B32, B32>("s_mov_b32", copy),
    salu1<B64, B64>("s_mov_b64", copy),
    salu1<B32, B32>("s_not_b32", invert),
    salu1<B64, B64>("s_not_b64", invert),
    salu1<B32, B32>("s_brev_b32", [](u32 a, u32&) { return static_cast<u32>(reverse_bits(a) >> 32); }),
    salu1<B64, B64>("s_brev_b64", [](u64 a, u32&) { return reverse_bits(a); }),
    salu1<B32, B32>("s_bcnt1_i32_b32", ones),
    salu1<B32, B64>("s_bcnt1_i32_b64", ones),
    salu1<B32, B32>("s_bcnt0_i32_b32", zeros),
    salu1<B32, B64>("s_bcnt0_i32_b64", zeros),
    salu1<B32, B32>("s_ff1_i32_b32", first_one),
    salu1<B32, B64>("s_ff1_i32_b64", first_one),
    salu1<B32, B32>("s_ff0_i32_b32", first_zero32),
    salu1<B32, B64>("s_ff0_i32_b64", [](u64 a, u32& scc) { return first_one(~a, scc); }),
    salu1<B32, B32>("s_flbit_i32_b32", leading32),
    salu1<B32, B64>("s_flbit_i32_b64", leading64),
    salu1<B32, B32>("s_flbit_i32", sign_run32),
    salu1<B32, B64>("s_flbit_i32_i64", sign_run64),
    salu1<B32, B32>("s_sext_i32_i8",
                    [](u32 a, u32&) { return static_cast<u32>(static_cast<i32>(static_cast<int8_t>(a))); }),
    salu1<B32, B32>("s_sext_i32_i16", [](u32 a, u32&) { return s16(a); }),
    salu1<B32, I32>("s_abs_i32", magnitude),
    salu1<B32, B32>("s_movk_i32", [](u32 a, u32&) { return s16(a); }),
    {"s_cmov_b32", &cmov32, kS, 1, 1, false, Type::kB32, {Type::kB32}},
    {"s_cmov_b64", &cmov64, kS, 1, 1, false, Type::kB64, {Type::kB64}},
    {"s_cmovk_i32", &cmovk, kS, 1, 1, false, Type::kB32, {Type::kB32}},
    {"s_addk_i32", &addk, kS, 1, 1, false, Type::kB32, {Type::kB32}},
    {"s_mulk_i32", &mulk, kS, 1, 1, false, Type::kB32, {Type::kB32}},
    {"s_bitset0_b32", &bitset<false, u32>, kS, 1, 1, false, Type::kB32, {Type::kB32}},
    {"s_bitset1_b32", &bitset<true, u32>, kS, 1, 1, false, Type::kB32, {Type::kB32}},
    {"s_bitset0_b64", &bitset<false, u64>, kS, 1, 1, false, Type::kB64, {Type::kB32}},
    {"s_bitset1_b64", &bitset<true, u64>, kS, 1, 1, false, Type::kB64, {Type::kB32}},
    EXEC_OPS("b32", u32),
    EXEC_OPS("b64", u64),
    COMPARES("s_cmp_", "i32", I32),
    COMPARES("s_cmp_", "u32", B32),
    COMPARES("s_cmp_", "u64", B64),
    CMPKS("i32", true),
    CMPKS("u32", false),
    compare_entry<B32>("s_bitcmp0_b32", [](u32 a, u32 b) { return !(a >> (b & 31) & 1); }),
    compare_entry<B32>("s_bitcmp1_b32", [](u32 a, u32 b) { return (a >> (b & 31) & 1) != 0; }),
    compare_entry<B64, B32>("s_bitcmp0_b64", [](u64 a, u32 b) { return !(a >> (b & 63) & 1); }),
    compare_entry<B64, B32>("s_bitcmp1_b64", [](u64 a, u32 b) { return (a >> (b & 63) & 1) != 0; }),
};

}  // namespace
}  // namespace ROCM_SD_ISA

Operations scalar_operations() { return {ROCM_SD_ISA::kTable, std::size(ROCM_SD_ISA::kTable)}; }

}  // namespace rocm_sd::emu
