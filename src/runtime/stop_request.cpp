#include "runtime/stop_request.hpp"

namespace rocm_sd {
namespace {

thread_local const CancelCheck* current = nullptr;

}  // namespace

StopRequest::StopRequest() : check_(current) {}

StopScope::StopScope(const CancelCheck* check) : before_(current) {
  current = check && *check ? check : nullptr;
}
StopScope::~StopScope() { current = before_; }

}  // namespace rocm_sd
