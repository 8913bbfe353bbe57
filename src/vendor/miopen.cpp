// MIOpen, found when the program runs: its immediate mode, whose solutions a tuning table can name, and its
// search, what that finds is kept by MIOpen in its user database.
#include <algorithm>
#include <limits>
#include <mutex>

#include "vendor/convolution.hpp"
#include "vendor/miopen_api.hpp"

namespace rocm_sd::vendor {
namespace {

constexpr const char* kProduct = "MIOpen";

// Functions and handle, with the stream set before each use. One use at a time: the handle is not for several
// threads.
struct Library {
  Miopen::Api api;
  Miopen::Handle handle = nullptr;
  std::mutex mutex;

  void check(Miopen::Status status, const char* call) const {
    if (status != Miopen::kSuccess)
      throw_failed(kProduct, call, concat(api.miopenGetErrorString(status), " (", status, ")"));
  }
};
#define ROCM_SD_CALL(call, ...) library_.check(library_.api.call(__VA_ARGS__), #call)

// The descriptors of one shape.
class Problem {
 public:
  Problem(Library& library, const ConvShape& shape) : library_(library) {
    try {
      make(shape);
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~Problem() { destroy(); }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  // Best first, by what MIOpen measured or guesses.
  std::vector<Miopen::Solution> solutions(size_t most) {
    const std::lock_guard lock(library_.mutex);
    size_t count = 0;
    ROCM_SD_CALL(miopenConvolutionForwardGetSolutionCount, library_.handle, w_, x_, conv_, y_, &count);
    std::vector<Miopen::Solution> found(std::min(count, most));
    if (found.empty()) return found;
    count = 0;
    ROCM_SD_CALL(miopenConvolutionForwardGetSolution, library_.handle, w_, x_, conv_, y_, found.size(),
                 &count, found.data());
    found.resize(std::min(count, found.size()));
    return found;
  }
  void compile(uint64_t solution) {
    const std::lock_guard lock(library_.mutex);
    ROCM_SD_CALL(miopenConvolutionForwardCompileSolution, library_.handle, w_, x_, conv_, y_, solution);
  }
  void run(void* stream, const Miopen::Solution& solution, const ConvOperands& o) {
    const std::lock_guard lock(library_.mutex);
    ROCM_SD_CALL(miopenSetStream, library_.handle, stream);
    ROCM_SD_CALL(miopenConvolutionForwardImmediate, library_.handle, w_, o.filter, x_, o.x, conv_, y_, o.y,
                 o.workspace, solution.workspace_bytes, solution.id);
  }
  size_t search_workspace() {
    const std::lock_guard lock(library_.mutex);
    size_t bytes = 0;
    ROCM_SD_CALL(miopenConvolutionForwardGetWorkSpaceSize, library_.handle, w_, x_, conv_, y_, &bytes);
    return bytes;
  }
  void search(void* stream, const ConvOperands& o, size_t workspace_bytes) {
    const std::lock_guard lock(library_.mutex);
    Miopen::Found best{};
    int count = 0;
    ROCM_SD_CALL(miopenSetStream, library_.handle, stream);
    ROCM_SD_CALL(miopenFindConvolutionForwardAlgorithm, library_.handle, x_, o.x, w_, o.filter, conv_, y_,
                 o.y, 1, &count, &best, o.workspace, workspace_bytes, false);
    require<LibraryError>(count > 0, kProduct, ": its search found nothing");
  }

 private:
  void make(const ConvShape& s) {
    const int type = s.dtype == DType::kF32   ? Miopen::kFloat
                     : s.dtype == DType::kF16 ? Miopen::kHalf
                                              : Miopen::kBfloat16;
    // Extents in the order N C H W, as MIOpen names them, with the strides of NHWC.
    const auto tensor = [&](Miopen::Tensor& out, int64_t n, int64_t c, int64_t h, int64_t w) {
      const auto small = [](int64_t extent) { return static_cast<int>(extent); };
      const int extents[] = {small(n), small(c), small(h), small(w)};
      const int strides[] = {small(h * w * c), 1, small(w * c), small(c)};
      ROCM_SD_CALL(miopenCreateTensorDescriptor, &out);
      ROCM_SD_CALL(miopenSetTensorDescriptor, out, type, 4, extents, strides);
    };
    tensor(x_, s.batch, s.channels, s.height, s.width);
    tensor(w_, s.outputs, s.channels, s.filter_h, s.filter_w);
    tensor(y_, s.batch, s.outputs, s.out_h, s.out_w);
    const auto stride = static_cast<int>(s.stride);
    ROCM_SD_CALL(miopenCreateConvolutionDescriptor, &conv_);
    ROCM_SD_CALL(miopenInitConvolutionDescriptor, conv_, Miopen::kConvolution, static_cast<int>(s.pad_top),
                 static_cast<int>(s.pad_left), stride, stride, 1, 1);
    // Same seed, same bits.
    ROCM_SD_CALL(miopenSetConvolutionAttribute, conv_, Miopen::kDeterministic, 1);
  }
  void destroy() noexcept {
    for (Miopen::Tensor tensor : {x_, w_, y_})
      if (tensor) library_.api.miopenDestroyTensorDescriptor(tensor);
    if (conv_) library_.api.miopenDestroyConvolutionDescriptor(conv_);
  }

  Library& library_;
  Miopen::Tensor x_ = nullptr, w_ = nullptr, y_ = nullptr;
  Miopen::Conv conv_ = nullptr;
};
#undef ROCM_SD_CALL

class MiopenConvolution final : public Convolution {
 public:
  MiopenConvolution(std::shared_ptr<Problem> problem, const Miopen::Solution& solution, std::string name)
      : problem_(std::move(problem)), solution_(solution), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  size_t workspace_bytes() const override { return solution_.workspace_bytes; }
  void run(void* stream, const ConvOperands& operands) override {
    problem_->run(stream, solution_, operands);
  }

 private:
  std::shared_ptr<Problem> problem_;
  Miopen::Solution solution_;
  std::string name_;
};

class MiopenLibrary final : public ConvLibrary {
 public:
  explicit MiopenLibrary(const Miopen::Api& api) {
    library_.api = api;
    library_.check(api.miopenCreate(&library_.handle), "miopenCreate");
  }
  ~MiopenLibrary() override { library_.api.miopenDestroy(library_.handle); }

  bool fuses_epilogues() const override { return false; }
  bool widens() const override { return false; }

  // Solutions are compiled here: nothing is left for a capture to do.
  std::vector<std::shared_ptr<Convolution>> prepare(const ConvShape& shape, int most) override {
    const auto problem = problem_of(shape);
    std::vector<std::shared_ptr<Convolution>> out;
    std::string refusals;
    for (const Miopen::Solution& solution : problem->solutions(static_cast<size_t>(most))) try {
        problem->compile(solution.id);
        out.push_back(std::make_shared<MiopenConvolution>(problem, solution, concat(solution.id)));
      } catch (const LibraryError& error) {
        refusals = error.what();
      }
    require<LibraryError>(!out.empty(), kProduct, ": has no solution for it", refusals.empty() ? "" : ", ",
                          refusals);
    return out;
  }

  bool searches() const override { return true; }
  size_t search_workspace(const ConvShape& shape) override { return problem_of(shape)->search_workspace(); }
  // After a search the solutions come in the order of the times that it measured.
  std::shared_ptr<Convolution> search(const ConvShape& shape, void* stream,
                                      const ConvOperands& operands) override {
    const auto problem = problem_of(shape);
    problem->search(stream, operands, problem->search_workspace());
    const auto solutions = problem->solutions(1);
    require<LibraryError>(!solutions.empty(), kProduct, ": has no solution after its search");
    problem->compile(solutions[0].id);
    return std::make_shared<MiopenConvolution>(problem, solutions[0], "find");
  }

 private:
  std::shared_ptr<Problem> problem_of(const ConvShape& s) {
    constexpr int64_t kMax = std::numeric_limits<int>::max();
    require<LibraryError>(s.epilogue.empty() && s.result == s.dtype, kProduct, ": stores sums as they are");
    require<LibraryError>(s.pad_top == s.pad_bottom && s.pad_left == s.pad_right, kProduct,
                          ": pads both sides alike");
    require<LibraryError>(
        s.batch * s.height * s.width * s.channels <= kMax && s.batch * s.out_h * s.out_w * s.outputs <= kMax,
        kProduct, ": counts to 2^31");
    return std::make_shared<Problem>(library_, s);
  }

  Library library_;
};

}  // namespace

std::shared_ptr<ConvLibrary> open_miopen() {
  const DynamicLibrary library = open_library(kProduct);
  Miopen::Api api;
#define ROCM_SD_LOAD(name, ...) \
  api.name = reinterpret_cast<decltype(api.name)>(find_function(library, #name));
  ROCM_SD_MIOPEN_FUNCTIONS(ROCM_SD_LOAD)
  ROCM_SD_LOAD(miopenGetErrorString)
#undef ROCM_SD_LOAD
  return std::make_shared<MiopenLibrary>(api);
}

}  // namespace rocm_sd::vendor
