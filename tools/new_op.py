#!/usr/bin/env python3
"""Makes a memory-bound op that builds and passes: `tools/new_op.py scale` writes

    src/composable_kernels/fused/scale.hpp     the portable body: every device runs it
    src/kernels/scale/scale.hip                its kernels on GPUs
    src/kernels/scale/scale.hpp, scale.cpp     the op and its description, y = factor * x to begin with
    tests/unit_tests/kernels/scale_test.cpp    its test
    src/kernels/op_list.inc                    the op's name in the list that tools read

Then `make build`, `rocm-sd bench "scale f16 [1000000] by 2.5"`, and replace the formula by yours in the body, in exact() and in the
test. All that is derived (the launches, the tuner's candidates, the reference, the C interface, PyTorch's run_op) is described in
src/kernels/memory_bound.hpp. --root DIR: another copy of the source tree."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent

BODY = """\
// @name@: what it computes, in one sentence.
// Problem   y[i] = factor * x[i]
// Mapping   a thread takes an element, the grid's threads in turn
// Traffic   x once, y once
// Numerics  float, rounded once
// Limits    none
#pragma once

#include "composable_kernels/block.hpp"

namespace rocm_sd {

template <class T>
struct @Name@Params {
  const T* x;  // [size]
  T* y;        // [size]
  int64_t size;
  float factor;
  uint32_t workgroups;  // of the grid
};

template <class Arch, class T>
ROCM_SD_DEVICE void @name@_body(const @Name@Params<T>& p, const Block<Arch>& block) {
  for (int64_t i = block.first_item(); i < p.size; i += block.item_stride())
    store(p.y[i], p.factor * to_float(p.x[i]));
}

}  // namespace rocm_sd
"""

KERNELS = """\
// The kernels of @name@: composable_kernels/fused/@name@.hpp.
#include "composable_kernels/fused/@name@.hpp"

#include "kernels/memory_bound_kernels.hpp"

ROCM_SD_OP_FLOATS(@name@, @Name@Params)
"""

CONTRACT = """\
// @name@: what it computes, in one sentence.
#pragma once

#include "runtime/exec.hpp"

namespace rocm_sd {

// factor * x: x contiguous, f32, bf16 or f16 -> x's shape and type. Throws UsageError for other types.
Tensor @name@(Exec& ex, const Tensor& x, float factor);

}  // namespace rocm_sd
"""

DESCRIPTION = """\
#include "kernels/@name@/@name@.hpp"

#include "composable_kernels/fused/@name@.hpp"
#include "kernels/memory_bound.hpp"
#include "kernels/ops.hpp"

namespace rocm_sd {
namespace {

struct @Name@Problem {
  const void* x = nullptr;
  void* y = nullptr;
  DType dtype = DType::kF32;
  int64_t size = 0;
  float factor = 1;

  static constexpr const char* kOp = "@name@";
  static constexpr const char* kExample = "f32 [1000] by 2.5";
  static void text(auto& p, auto& t) {
    t.type(p.dtype).word(" [").extent(p.size).word("] by ").number(p.factor);
  }
  std::string describe() const { return text_of(*this); }
  static void operands(auto& p, auto& v) {
    v.input("x", p.x, {p.size}, p.dtype);
    v.output("y", p.y, {p.size}, p.dtype);
  }
  double flops() const { return static_cast<double>(size); }
  double exact(const auto& in, int64_t i) const { return double{factor} * in(0, i); }

  int64_t items() const { return size; }
  template <class T>
  @Name@Params<T> params(uint32_t workgroups) const {
    return {static_cast<const T*>(x), static_cast<T*>(y), size, factor, workgroups};
  }
  template <class Arch, class... T>
  static void body(const auto& params, const Block<Arch>& block) {
    @name@_body(params, block);
  }
};

}  // namespace

AnyOp @name@_op() { return MemoryBound<@Name@Problem>::any(); }

Tensor @name@(Exec& ex, const Tensor& x, float factor) {
  require_activation_type(x, "@name@", "x");
  require_contiguous(x, "@name@", "x");
  const @Name@Problem problem{.dtype = x.dtype(), .size = x.numel(), .factor = factor};
  return run_op(ex, problem, {x.reshape({x.numel()})}).reshape(x.shape());
}

}  // namespace rocm_sd
"""

TEST = """\
// @name@ against its formula. Its example runs with those of all ops (measurement/runner_test.cpp).
#include "kernels/@name@/@name@.hpp"

#include "kernels/select.hpp"
#include "support/tensor_testing.hpp"

namespace rocm_sd::testing_support {

TEST(@Name@, ScalarAndReferenceAreTheFormula) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const int64_t size : {0, 1, 3, 1000})
      for (const char* impl : {"scalar", "ref"}) {
        const ForcedImpl only("@name@", impl);
        TestExec test;
        const Tensor x = random_tensor({size}, dtype, 3);
        std::vector<double> want = to_doubles(x);
        for (double& v : want) v *= 2.5;
        expect_tensor_near(@name@(test.ex, x, 2.5f), want, 2 * unit_roundoff(dtype), impl);
      }
}

}  // namespace rocm_sd::testing_support
"""

FILES = {
    "src/composable_kernels/fused/@name@.hpp": BODY,
    "src/kernels/@name@/@name@.hip": KERNELS,
    "src/kernels/@name@/@name@.hpp": CONTRACT,
    "src/kernels/@name@/@name@.cpp": DESCRIPTION,
    "tests/unit_tests/kernels/@name@_test.cpp": TEST,
}
OPS = "src/kernels/op_list.inc"


def filled(template: str, name: str) -> str:
    pascal = "".join(word.capitalize() for word in name.split("_"))
    return template.replace("@name@", name).replace("@Name@", pascal)


def listed(ops: str, name: str) -> str:
    """The list of ops with this one behind the others."""
    line = f"ROCM_SD_OP_ENTRY({name})\n"
    if line in ops:
        raise SystemExit(f"{OPS}: {name} is listed already")
    return ops + line


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="in snake_case")
    parser.add_argument("--root", type=Path, default=REPOSITORY)
    options = parser.parse_args(argv)
    name, root = options.name, options.root
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise SystemExit(f"{name!r}: expected a name in snake_case")
    files = {root / filled(path, name): filled(text, name) for path, text in FILES.items()}
    for path in [*files, root / "src/kernels" / name]:
        if path.exists():
            raise SystemExit(f"{path} exists")
    ops = listed((root / OPS).read_text(), name)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(root))
    (root / OPS).write_text(ops)
    print(OPS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
