// Op<P>: an op by its one description P, a plain struct of extents and types. What P holds:
//   kOp, kExample        the op's name, and the text of a problem
//   text(p, t)           the problem's text, both ways (op_text.hpp)
//   dtype                what is computed with
//   operands()           what is read and written
//   flops(), bytes()     the work: operands read once, the output written once
//   run(ex, in, weight)  calls the op, which chooses among its implementations (select.hpp)
//   exact(in, i)         element i of the first output in double precision, with its tolerance
//   check()              throws ShapeError or UsageError for extents that the text cannot have but C callers
//   can
// and, where they say something: extent(), reads_per_output(), eight_bit_weight(), products.
#pragma once

#include "kernels/op_problem.hpp"
#include "kernels/op_text.hpp"

namespace rocm_sd {

template <class P>
concept OpDescription =
    requires(const P& p, Exec& ex, const Operands& in, const Weight& w, const OperandValues& values) {
      { P::kOp } -> std::convertible_to<const char*>;
      { P::kExample } -> std::convertible_to<const char*>;
      { p.operands() } -> std::convertible_to<std::vector<Operand>>;
      { p.flops() } -> std::convertible_to<double>;
      { p.bytes() } -> std::convertible_to<double>;
      { p.run(ex, in, w) } -> std::convertible_to<std::vector<Result>>;
      { p.exact(values, int64_t{}) } -> std::convertible_to<ExactValue>;
    };

template <OpDescription P>
struct Op {
  static std::string describe(const P& p) { return text_of(p); }
  static P parse(std::string_view text) { return problem_from<P>(text); }
  static OpProblem problem(const P& p) {
    if constexpr (requires { p.check(); }) p.check();
    OpProblem out{.op = P::kOp, .text = describe(p), .operands = p.operands(), .dtype = p.dtype};
    out.flops = p.flops();
    out.bytes = p.bytes();
    if constexpr (requires { p.reads_per_output(); }) out.reads_per_output = p.reads_per_output();
    if constexpr (requires { p.extent(); }) out.extent = p.extent();
    if constexpr (requires { p.eight_bit_weight(); }) {
      out.eight_bit_weight = p.eight_bit_weight();
      out.eight_bit_products = p.products;
    }
    out.run = [p](Exec& ex, const Operands& in, const Weight& w) { return p.run(ex, in, w); };
    out.exact = [p](const OperandValues& in, int64_t i) { return p.exact(in, i); };
    return out;
  }
  static AnyOp any() {
    return {P::kOp, P::kExample, [](std::string_view text) { return problem(parse(text)); }};
  }
};

}  // namespace rocm_sd
