#include "runtime/beside.hpp"

#include "base/error.hpp"
#include "base/log.hpp"

namespace rocm_sd {

using Kind = LaunchPlace::Kind;

Beside::Beside(Exec& ex) : ex_(ex), side_(side_launches(ex.device())) {
  if (!side_ || ex.planning()) return;
  begin_ = side_->make_point();
  end_ = side_->make_point();
}

void Beside::run(const std::function<void()>& launches) {
  if (!begin_) return launches();
  ex_.place({Kind::kFork, side_, begin_});
  open_ = true;
  ex_.place({Kind::kBeside, side_, begin_});
  try {
    launches();
  } catch (...) {
    ex_.place({});
    throw;
  }
  ex_.place({});
}

void Beside::join() {
  if (!open_) return;
  open_ = false;
  ex_.place({Kind::kJoin, side_, end_});
}

Beside::~Beside() {
  try {
    join();
  } catch (const Error& error) {
    log().warn("{}", error.what());
  }
}

}  // namespace rocm_sd
