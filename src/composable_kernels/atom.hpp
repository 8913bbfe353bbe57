// Atom: one 16x16x16 product by the matrix unit, C += A B with 16-bit A and B and C in float, the same in
// every family. A wave holds A [16 rows][16 k], B [16 k][16 columns] and C [16 rows][16 columns] in
// fragments.
//
// Which operand is which: A is the weight, the key or the transposed value (its rows become consecutive
// elements of the output: channels), B the activation or the query (its columns are tokens or pixels). A lane
// holds several rows of few columns of C, so that the output is stored in wide pieces, a softmax over rows
// stays mostly inside a lane, and C turns into the B of the next product inside the wave (as_b).
//
// Each arch/<family>.hpp specialises Atom<Arch, T> for T = Half and Bf16:
//   struct A, B, C                       fragments; C has float x[kCount]
//   kColumns                             columns of C that one lane holds elements of
//   row(i), column(i)                    place in C of the lane's element i
//   kRowStep                             row(i + 1) - row(i) inside 8 rows, where it is not 1
//   lane_column(i)                              the number, in [0, kColumns), of that element's column
//   load(tile, ld), load_b(tile, ld)     A or B from LDS, element (row or column r, k) at tile[r * ld + k];
//                                        every row begins at a multiple of 16 bytes
//   load(tile, ld, skip)                 on AMD and the host: behind every 8 rows `skip` elements more
//   load_transposed(tile, ld)            A from LDS, element (row r, k) at tile[k * ld + r]
//   mma(c, a, b)                         c += a b
//   as_b(c)                              C's rows as k, rounded to T
//   as_weights<kSum>(c, sum)             on AMD: the same of numbers of at least 0, cut off in place of being
//                                        rounded; kSum: what is returned is added to sum[kColumns]
//   store_columns(tile, ld, c)           C's columns as rows: element (row r, column c) to tile[c * ld + r]
//                                        rounded to T; every row begins at a multiple of 16 bytes
//   column_sum(x), column_max(x)         over the lanes that share a column, after each has folded its own
//   rows
#pragma once

#include "composable_kernels/types.hpp"

namespace rocm_sd {

template <class Arch, class T>
struct Atom;

}  // namespace rocm_sd
