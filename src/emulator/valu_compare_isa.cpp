// Vector comparisons: v_cmp writes a mask, v_cmpx the exec mask.
#include "emulator/lane_math.hpp"
#include "emulator/operations.hpp"

namespace rocm_sd::emu {
namespace ROCM_SD_ISA {
namespace {

inline uint32_t gather_bits(const uint32_t* flag) {
  uint32_t bits = 0;
  for (uint32_t l = 0; l < kRow; ++l) bits |= (flag[l] & 1) << l;
  return bits;
}

template <class F, class A, class B, bool WritesExec>
void compare(Wave& w, const Inst& in) {
  uint32_t result[2] = {};  // written last: a source may be a part of the destination
  for (uint32_t h = 0; h < w.halves; ++h) {
    const uint32_t exec = exec_of(w, h);
    uint32_t bits = 0;
    if (exec) {
      Buffer<A> ba;
      Buffer<B> bb;
      Buffer<B32> flag;
      const auto* a = fetch<A>(w, in.src[0], h, ba.lane);
      const auto* b = fetch<B>(w, in.src[1], h, bb.lane);
      ROCM_SD_LANES flag.lane[l] = F{}(a[l], b[l]) ? 1 : 0;
      bits = gather_bits(flag.lane) & exec;
    }
    result[h] = bits;
  }
  for (uint32_t h = 0; h < w.halves; ++h) {
    if (in.dst.kind == Kind::kSgpr) w.sgpr[in.dst.reg + h] = result[h];
    if (WritesExec) w.sgpr[kExec + h] = result[h];
  }
}

template <class A, class B, bool X, class F>
constexpr Operation cmp(const char* name, F) {
  // gfx9's v_cmpx names a mask destination, later ones do not; the translator looks at the text.
  return {name,  &compare<F, A, B, X>, Class::kValu,      X ? uint8_t{0} : uint8_t{1}, 2,
          false, Type::kMask,          {A::type, B::type}};
}

constexpr auto never = [](auto, auto) { return false; };
constexpr auto lt = [](auto a, auto b) { return a < b; };
constexpr auto eq = [](auto a, auto b) { return a == b; };
constexpr auto le = [](auto a, auto b) { return a <= b; };
constexpr auto gt = [](auto a, auto b) { return a > b; };
constexpr auto lg = [](auto a, auto b) { return a < b || a > b; };
constexpr auto ge = [](auto a, auto b) { return a >= b; };
constexpr auto ord = [](auto a, auto b) { return a == a && b == b; };
constexpr auto uno = [](auto a, auto b) { return a != a || b != b; };
constexpr auto nge = [](auto a, auto b) { return !(a >= b); };
constexpr auto nlg = [](auto a, auto b) { return !(a < b || a > b); };
constexpr auto ngt = [](auto a, auto b) { return !(a > b); };
constexpr auto nle = [](auto a, auto b) { return !(a <= b); };
constexpr auto neq = [](auto a, auto b) { return a != b; };
constexpr auto nlt = [](auto a, auto b) { return !(a < b); };
constexpr auto always = [](auto, auto) { return true; };

// The class test sees the bits, after neg and abs.
constexpr auto class16 = [](uint32_t a, uint32_t mask) { return (class_of(a & 0xffff, 5, 10) & mask) != 0; };
constexpr auto class32 = [](float a, uint32_t mask) {
  return (class_of(cast<uint32_t>(a), 8, 23) & mask) != 0;
};
constexpr auto class64 = [](double a, uint32_t mask) {
  return (class_of(cast<uint64_t>(a), 11, 52) & mask) != 0;
};

#define FLOAT_COMPARES(prefix, suffix, Ty, X)                                                  \
  cmp<Ty, Ty, X>(prefix "f_" suffix, never), cmp<Ty, Ty, X>(prefix "lt_" suffix, lt),          \
      cmp<Ty, Ty, X>(prefix "eq_" suffix, eq), cmp<Ty, Ty, X>(prefix "le_" suffix, le),        \
      cmp<Ty, Ty, X>(prefix "gt_" suffix, gt), cmp<Ty, Ty, X>(prefix "lg_" suffix, lg),        \
      cmp<Ty, Ty, X>(prefix "ge_" suffix, ge), cmp<Ty, Ty, X>(prefix "o_" suffix, ord),        \
      cmp<Ty, Ty, X>(prefix "u_" suffix, uno), cmp<Ty, Ty, X>(prefix "nge_" suffix, nge),      \
      cmp<Ty, Ty, X>(prefix "nlg_" suffix, nlg), cmp<Ty, Ty, X>(prefix "ngt_" suffix, ngt),    \
      cmp<Ty, Ty, X>(prefix "nle_" suffix, nle), cmp<Ty, Ty, X>(prefix "neq_" suffix, neq),    \
      cmp<Ty, Ty, X>(prefix "nlt_" suffix, nlt), cmp<Ty, Ty, X>(prefix "tru_" suffix, always), \
      cmp<Ty, Ty, X>(prefix "t_" suffix, always)
#define INT_COMPARES(prefix, suffix, Ty, X)                                              \
  cmp<Ty, Ty, X>(prefix "f_" suffix, never), cmp<Ty, Ty, X>(prefix "lt_" suffix, lt),    \
      cmp<Ty, Ty, X>(prefix "eq_" suffix, eq), cmp<Ty, Ty, X>(prefix "le_" suffix, le),  \
      cmp<Ty, Ty, X>(prefix "gt_" suffix, gt), cmp<Ty, Ty, X>(prefix "ne_" suffix, neq), \
      cmp<Ty, Ty, X>(prefix "ge_" suffix, ge), cmp<Ty, Ty, X>(prefix "t_" suffix, always)
#define ALL_COMPARES(prefix, X)                                                                \
  FLOAT_COMPARES(prefix, "f16", F16, X), FLOAT_COMPARES(prefix, "f32", F32, X),                \
      FLOAT_COMPARES(prefix, "f64", F64, X), INT_COMPARES(prefix, "i16", I16, X),              \
      INT_COMPARES(prefix, "u16", B16, X), INT_COMPARES(prefix, "i32", I32, X),                \
      INT_COMPARES(prefix, "u32", B32, X), INT_COMPARES(prefix, "i64", I64, X),                \
      INT_COMPARES(prefix, "u64", B64, X), cmp<HalfBits, B32, X>(prefix "class_f16", class16), \
      cmp<RawF32, B32, X>(prefix "class_f32", class32), cmp<RawF64, B32, X>(prefix "class_f64", class64)

constexpr Operation kTable[] = {ALL_COMPARES("v_cmp_", false), ALL_COMPARES("v_cmpx_", true)};

}  // namespace

Operations valu_compare() { return {kTable, sizeof(kTable) / sizeof(kTable[0])}; }

}  // namespace ROCM_SD_ISA
}  // namespace rocm_sd::emu
