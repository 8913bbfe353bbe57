// Quantiles of the beta distribution: bisection on the incomplete beta function.
#include "schedulers/beta_quantile.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>

namespace rocm_sd {
namespace {

// Continued fraction of I_x(a, b) (DLMF 8.17.22), evaluated by Lentz's method; converges fast for
// x < (a + 1) / (a + b + 2).
double incomplete_beta_fraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
  double value = d;
  for (int m = 1; m <= 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double change = 1;
    for (const double term : {even, odd}) {
      d = 1 + term * d;
      d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
      c = 1 + term / c;
      if (std::fabs(c) < kTiny) c = kTiny;
      change = c * d;
      value *= change;
    }
    if (std::fabs(change - 1) < 1e-16) break;
  }
  return value;
}

double incomplete_beta(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * incomplete_beta_fraction(x, a, b) / a;
  return 1 - front * incomplete_beta_fraction(1 - x, b, a) / b;
}

}  // namespace

double beta_quantile(double p, double a, double b) {
  if (p <= 0) return 0;
  if (p >= 1) return 1;
  if (a == b && p == 0.5) return 0.5;  // exactly: schedules round what they make of it
  double low = 0, high = 1;
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = 0.5 * (low + high);
    if (middle == low || middle == high) break;
    (incomplete_beta(middle, a, b) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace rocm_sd
