// Quantiles of the beta distribution, for the beta schedules.
#pragma once

namespace rocm_sd {

// x with I_x(a, b) = p, the regularised incomplete beta function; p within 0..1, a and b > 0. Accurate to
// about 1e-13 (SciPy's beta.ppf is the oracle in the tests).
double beta_quantile(double p, double a, double b);

}  // namespace rocm_sd
