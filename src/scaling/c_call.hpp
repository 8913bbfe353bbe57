// What the functions of the C interface share: guarded bodies, the thread's last error, results.
#pragma once

#include <new>
#include <string>
#include <vector>

#include "rocm_sd/pipeline.hpp"
#include "rocm_sd/rocm_sd.h"

namespace rocm_sd::c_call {

inline std::string& last_error() {
  static thread_local std::string message;
  return message;
}

inline rocm_sd_status fail(rocm_sd_status status, const char* message) noexcept {
  try {
    last_error() = message;
  } catch (...) {
    last_error().clear();
  }
  return status;
}

template <class Body>
rocm_sd_status guarded(const Body& body) noexcept {
  try {
    body();
    return ROCM_SD_OK;
  } catch (const Error& e) {
    return fail(static_cast<rocm_sd_status>(e.exit_code()), e.what());
  } catch (const std::bad_alloc&) {
    return fail(ROCM_SD_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return fail(ROCM_SD_INTERNAL, e.what());
  } catch (...) {
    return fail(ROCM_SD_INTERNAL, "unknown error");
  }
}

inline void require_argument(bool ok, const char* name) {
  if (!ok) throw UsageError(std::string(name) + ": must not be NULL");
}

inline Callbacks adapt(const rocm_sd_callbacks* c) {
  Callbacks out;
  if (!c) return out;
  out.progress = [c](const Progress& p) {
    return !c->progress || c->progress(c->user, p.stage.c_str(), p.step, p.total, p.seconds) == 0;
  };
  if (c->preview)
    out.preview = [c](const Preview& p) {
      c->preview(c->user, p.image, p.step, p.total, p.picture.width, p.picture.height, p.picture.rgb.data(),
                 p.seconds);
    };
  if (c->cancel) out.cancelled = [c] { return *c->cancel != 0; };
  return out;
}

// Owns everything that the C structs point to.
struct Result : rocm_sd_result {
  std::vector<Picture> owned;
  std::vector<rocm_sd_picture> views;

  void take(std::vector<Picture> made) {
    owned = std::move(made);
    for (const Picture& p : owned)
      views.push_back({p.image.width, p.image.height, p.image.rgb.data(), p.seed, p.parameters.c_str(),
                       p.latents.empty() ? nullptr : p.latents.data(), p.latents.size()});
    count = views.size();
    pictures = views.data();
  }
};

}  // namespace rocm_sd::c_call
