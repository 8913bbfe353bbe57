// rocm_sd::_doctor: the findings of `rocm-sd doctor`, for front ends that show them.
#include "doctor/diagnose.hpp"
#include "pytorch_integration/operators.hpp"

namespace rocm_sd::torch_ops {

std::string doctor_report() {
  const doctor::Examination examination = doctor::examine();
  return doctor::report_text(examination, doctor::diagnose(examination));
}

}  // namespace rocm_sd::torch_ops
