#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/base/error.h"
#include "replica/base/units.h"
#include "replica/device/device.h"
#include "replica/device/product.h"
#include "replica/graph/graph.h"
#include "replica/graph/types.h"

/// Operators and their faces (interface methods): shape (inference), gradient, work (cost model), numerics (kernel)
/// and, for sums of products, product. To add a family of operators, add a .cc file without a header below replica/ops.
namespace poprun {

/// The types and attributes of one use of an operator.
struct Signature {
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;  ///< Empty while the shape face runs.
  Attributes attributes;
};

/// Returns the signature of an operation in a graph.
Signature signature_of(const Graph& graph, const Operation& operation);

/// When, and on which replica, a kernel runs: its execution context. Random numbers and running means depend on it.
struct Moment {
  std::uint64_t seed = 0;         ///< The job's seed.
  std::uint64_t step = 0;         ///< Training steps before this one.
  std::uint32_t micro_batch = 0;  ///< Index within the step.
  std::uint32_t replica = 0;
  std::span<const std::string> salts = {};  ///< Names that the current call passes (random_name.h).
};

/// An index that is out of range, for the error message.
struct StrayIndex {
  std::int64_t index = 0;
  std::int64_t size = 0;     ///< Size of the indexed dimension; valid indices are -size to size - 1.
  std::int64_t element = 0;  ///< Position of the index in the tensor of indices.
};

/// 64-byte aligned addresses of the tensors of one use of an operator. They do not change while an engine exists.
struct Operands {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::byte* scratch = nullptr;  ///< Workspace of Kernel::scratch() bytes, 64-byte aligned, with undefined contents.
  const Moment* moment = nullptr;
  std::optional<StrayIndex>* stray = nullptr;  ///< If not null, receives a run's first out-of-range index.

  [[nodiscard]] const float* input_f32(std::size_t i) const {
    return reinterpret_cast<const float*>(inputs[i]);  // NOLINT: bytes of an f32 tensor.
  }
  [[nodiscard]] float* output_f32(std::size_t i) const {
    return reinterpret_cast<float*>(outputs[i]);  // NOLINT: bytes of an f32 tensor.
  }
  void report(const StrayIndex& found) const {
    if (stray != nullptr && !*stray) {
      *stray = found;
    }
  }
};

/// Computes one use of an operator. A kernel is prepared once, and can then run in every step. It uses one thread.
///
/// Kernels are deterministic: the same operand bytes give the same result bytes at any address. (Some of oneDNN's sums
/// depend on addresses modulo 64, which is always 0.)
class Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  virtual void run(const Operands& operands) = 0;

  /// Returns the bytes of host memory that `run` needs as workspace besides the operands.
  [[nodiscard]] virtual Bytes scratch() const { return Bytes{0}; }
};

/// Makes a Kernel from one function.
template <typename Function>
std::unique_ptr<Kernel> make_kernel(Function function) {
  class FunctionKernel final : public Kernel {
   public:
    explicit FunctionKernel(Function f) : function_(std::move(f)) {}
    void run(const Operands& operands) override { function_(operands); }

   private:
    Function function_;
  };
  return std::make_unique<FunctionKernel>(std::move(function));
}

class Differentiator;

/// An output that shares its memory with an input, at an offset.
struct Overlay {
  std::size_t input = 0;
  std::size_t output = 0;
  Bytes distance;  ///< Distance, possibly negative, from the input's first byte to the output's.
};

/// Describes how an operator works on shards. The first `inputs` inputs and the first `outputs` outputs are sharded.
/// Element i of each of these outputs depends only on element i of each sharded input and on the other inputs, which
/// are unsharded. Therefore, zeros that pad a shard do not affect its other elements. Any further outputs are exact
/// sums over the elements (square_sum.h): zeros add nothing, and the shards' sums add up to the full tensor's.
struct Cut {
  std::uint8_t inputs = 0;  ///< If 0, the operator needs all operands unsharded.
  std::uint8_t outputs = 0;

  explicit operator bool() const { return inputs > 0; }
};

/// A kind of operator. `shape`, `work` and `numerics` are never null. For each other function, the comment states what
/// null means. The registry checks that functions that belong together are set together.
struct Operator {
  std::string kind;

  /// Returns the output types. Errors: kUsage if the inputs or attributes do not fit. The message names the operator,
  /// what it needs and what it was given.
  Result<std::vector<TensorType>> (*shape)(const Signature&) = nullptr;

  /// Adds the backward operations through the Differentiator. `flat` adds none, so that no gradient passes. If null,
  /// the operator is not differentiable, and a job that needs a gradient through it is rejected.
  void (*gradient)(Differentiator&) = nullptr;

  /// Returns the work of one use, which determines the device time, unless the planner derives the time from `product`.
  Work (*work)(const Signature&) = nullptr;

  /// Returns a kernel that computes in float32. prepare_kernel (half/half_kernel.h) adds the conversions for float16.
  std::unique_ptr<Kernel> (*numerics)(const Signature&) = nullptr;

  /// For sums of products over one dimension: returns, for each input, the axis that the sum runs over, or kNoAxis for
  /// an input that is added once (an optional bias). If the result is empty, this use cannot be split along that
  /// dimension. Null if the operator is not a sum of products.
  std::vector<std::int64_t> (*contraction)(const Signature&) = nullptr;

  /// For sums of products: returns the product that the convolution planner spreads over the tiles. The stored types of
  /// the signature determine the product's arithmetic. Null if and only if `contraction` is null; the operator then
  /// uses only the vector units, not the matrix units.
  Product (*product)(const Signature&) = nullptr;

  /// For sums of products: returns the meaning of each axis of the first two inputs and the first output. Null if and
  /// only if `product` is null.
  OperandAxes (*operand_axes)(const Signature&) = nullptr;

  /// Index of the first output that is a statistic. This output and all later ones are float32 in every precision.
  std::size_t statistics_from = static_cast<std::size_t>(-1);

  /// Whether the numerics read Operands::moment, so that the same operands give different results in different
  /// micro-batches.
  bool reads_moment = false;

  /// Why output 0 can be infinite although all inputs are finite, and what to do about it, for an operator where only
  /// the data can cause this. Null for the others, whose numbers have grown too large.
  const char* infinite_because = nullptr;

  /// Output 0 may reuse the buffer of any of these inputs if the types are equal. Results are bit-identical, because
  /// element i of the output depends only on element i of each input, or the kernel overwrites an element only after
  /// its last use.
  std::vector<std::size_t> in_place = {};

  /// Returns whether this use only selects: each element of its results is an element of an input, or 0. It then cannot
  /// make a number that is not finite. Null if no use does. The author declares this, and selects_test.cc checks it.
  bool (*selects)(const Signature&) = nullptr;

  /// How the operator works on shards, if it can. Its author declares this, and shards_test.cc checks the declaration.
  Cut on_shards = {};

  /// Returns the overlays of outputs on inputs that make this use a no-op, because its results are then already in
  /// place. If the result is empty, this use is never a no-op; if `view` is null, no use is.
  std::vector<Overlay> (*view)(const Signature&) = nullptr;
};

/// Returns `op`, marked so that output 0 may reuse the buffer of any of these inputs.
Operator in_place(Operator op, std::vector<std::size_t> inputs);

/// Returns `op`, marked as selecting in the uses for which `selects` holds, or in every use.
Operator selecting(
    Operator op, bool (*selects)(const Signature&) = [](const Signature& /*s*/) { return true; });

/// Returns `op`, marked as working on shards.
Operator on_shards(Operator op, Cut cut);

/// Returns whether output 0 of this use may reuse the buffer of `input`.
bool may_take(const Operator& op, const Signature& signature, std::size_t input);

/// Returns whether this use is a no-op if its inputs and outputs are at these relative addresses.
bool is_view(const Operator& op, const Signature& signature, std::span<const std::int64_t> inputs,
             std::span<const std::int64_t> outputs);

inline constexpr std::int64_t kNoAxis = -1;

/// Passes no gradient: the gradient face of piecewise constant operators, such as comparisons.
inline void flat(Differentiator& /*d*/) {}

/// Returns all operators, sorted by kind.
const std::vector<Operator>& all_operators();

/// Returns the operator of that kind, or null.
const Operator* find_operator(std::string_view kind);

/// An operation as its operator's gradient face sees it.
class Differentiator {
 public:
  Differentiator() = default;
  Differentiator(const Differentiator&) = delete;
  Differentiator& operator=(const Differentiator&) = delete;
  virtual ~Differentiator() = default;

  [[nodiscard]] virtual const Operation& operation() const = 0;
  [[nodiscard]] virtual const TensorType& type(TensorId id) const = 0;

  /// Returns whether the gradient with respect to input i is needed.
  [[nodiscard]] virtual bool wants(std::size_t input) const = 0;

  /// Returns the gradient of the loss with respect to that output, or zeros if the loss does not depend on the output.
  virtual TensorId output_gradient(std::size_t output) = 0;

  /// Adds a contribution to the gradient of input i.
  virtual void set_input_gradient(std::size_t input, TensorId gradient) = 0;

  /// Removes and returns the gradient that other uses of the input have contributed so far. An operator that calls this
  /// must add its own contribution and set the sum. Returns nothing if there is no such gradient, or if the input is a
  /// parameter, because the uses of a parameter have separate gradients.
  virtual std::optional<TensorId> take_input_gradient(std::size_t input) = 0;

  /// Adds an operation. Its output k is a gradient with respect to input of_input[k] of the original operation.
  virtual std::vector<TensorId> add(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                                    const std::vector<std::size_t>& of_input) = 0;
};

/// Returns the name and version of the library that does most of the numerical work.
std::string numerics_library_version();

/// Returns a kUsage error for a shape face: `kind` needs `needed` but was given the signature's inputs and attributes.
tl::unexpected<Error> shape_error(std::string_view kind, const Signature& signature, std::string_view needed);

/// Returns the arithmetic of one use. This is float16 if the first input and the first output are stored as float16
/// (other operands may be scalars or statistics). With the attribute `partials`, the sums are float16, too.
Arithmetic arithmetic_of(const Signature& signature);

/// Returns the work of an elementwise operator that moves every operand once and does `flops` per output element.
Work elementwise_work(const Signature& signature, std::int64_t flops);

}  // namespace poprun
