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
#include "replica/graph/attributes.h"
#include "replica/graph/graph.h"
#include "replica/graph/types.h"

/// Operators with their faces: shape, gradient, work, numerics and, for sums of products, product. Each file below this
/// folder is one family of operators; to add one, add a file.
namespace poprun {

/// The types and attributes of one use of an operator.
struct Signature {
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;  ///< Empty while the shape face runs.
  Attributes attributes;
};

/// The signature of an operation in a graph.
Signature signature_of(const Graph& graph, const Operation& operation);

/// When and where a kernel runs, for kernels that draw random numbers.
struct Moment {
  std::uint64_t seed = 0;         ///< The job's seed.
  std::uint64_t step = 0;         ///< Training steps before this one.
  std::uint32_t micro_batch = 0;  ///< Index within the step.
  std::uint32_t replica = 0;
  std::span<const std::string> salts = {};  ///< Of the running call (random_name.h).
};

/// An index that is out of range.
struct StrayIndex {
  std::int64_t index = 0;
  std::int64_t size = 0;     ///< The indexed dimension's: -size to size - 1 are in range.
  std::int64_t element = 0;  ///< Its place in the tensor of indices.
};

/// The addresses of one use's tensors, at multiples of 64 bytes. They stay the same for the life of an engine.
struct Operands {
  std::vector<const std::byte*> inputs;
  std::vector<std::byte*> outputs;
  std::byte* scratch = nullptr;  ///< Kernel::scratch() bytes, 64-byte aligned, undefined contents.
  const Moment* moment = nullptr;
  std::optional<StrayIndex>* stray = nullptr;  ///< Takes the first one of a run; null: nobody asks.

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

/// The numerics of one use, prepared once and run every step.
///
/// Deterministic: the same operand bytes give the same result bytes at any address. (Some of oneDNN's sums depend on
/// addresses modulo 64, which is always 0.) Single-threaded.
class Kernel {
 public:
  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  virtual void run(const Operands& operands) = 0;

  /// Host bytes that `run` needs besides the operands. Not device memory, but a CPU library's workspace.
  [[nodiscard]] virtual Bytes scratch() const { return Bytes{0}; }
};

/// A Kernel made from one function.
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

/// Where an output lies if its bytes are those of an input.
struct Overlay {
  std::size_t input = 0;
  std::size_t output = 0;
  Bytes distance;  ///< From the input's first byte to the output's; may be negative.
};

/// How an operator works on shards: the first `inputs` inputs are cut, and so are the first `outputs` outputs. Element
/// i of these depends only on elements i of what is cut and on the other inputs, which are whole; a shard that is
/// filled up with zeros makes no other elements. Further outputs are exact sums over the elements (square_sum.h), to
/// which zeros add nothing: those of the shards, added up, are the whole's.
struct Cut {
  std::uint8_t inputs = 0;  ///< 0: it needs the whole of all operands.
  std::uint8_t outputs = 0;

  explicit operator bool() const { return inputs > 0; }
};

struct Operator {
  std::string kind;

  /// The output types, or why the inputs and attributes do not fit (kUsage; names the operator, what it needs and what
  /// it got).
  Result<std::vector<TensorType>> (*shape)(const Signature&) = nullptr;

  /// Adds the backward operations through the Differentiator. `flat`: there are none. Null: not differentiable.
  void (*gradient)(Differentiator&) = nullptr;

  Work (*work)(const Signature&) = nullptr;

  /// Computes in float32. float16 tensors are widened before and rounded after: prepare_kernel in half/half_kernel.h.
  std::unique_ptr<Kernel> (*numerics)(const Signature&) = nullptr;

  /// For sums of products over one dimension: the axis of each input that the sum runs over, or kNoAxis for an input
  /// that is added once (an optional bias). Empty if this use cannot be cut along it. Null: never.
  std::vector<std::int64_t> (*contraction)(const Signature&) = nullptr;

  /// For sums of products: what the convolution planner spreads over the tiles. The stored types of the signature
  /// decide the arithmetic. Null: the matrix units have no part in it.
  Product (*product)(const Signature&) = nullptr;

  /// Set with `product`: how the first two inputs and the first output lie in memory.
  OperandAxes (*operand_axes)(const Signature&) = nullptr;

  /// Outputs from this one on are statistics, which are float32 in any precision.
  std::size_t statistics_from = static_cast<std::size_t>(-1);

  /// Whether the numerics read Operands::moment: then equal operands in different micro-batches do not give equal
  /// results.
  bool reads_moment = false;

  /// Inputs whose bytes output 0 may take where both are of one type: its element i depends only on their elements i,
  /// or the kernel has read all that it needs of them by then. The result is the same to the last bit.
  std::vector<std::size_t> in_place = {};

  /// How it works on shards, if it can. Its author claims it, and shards_test.cc tries every operator that has it.
  Cut on_shards = {};

  /// The places at which this use has nothing to do, since all its outputs' bytes are its inputs' and the other way
  /// round. Empty: this use moves or computes something. Null: any use does.
  std::vector<Overlay> (*view)(const Signature&) = nullptr;
};

/// `op`, whose output 0 may take the bytes of any of these inputs.
Operator in_place(Operator op, std::vector<std::size_t> inputs);

/// `op`, which may work on shards.
Operator on_shards(Operator op, Cut cut);

/// Whether output 0 of this use may take the bytes of input i.
bool may_take(const Operator& op, const Signature& signature, std::size_t input);

/// Whether this use has nothing to do, with its inputs and outputs at these addresses (any origin).
bool is_view(const Operator& op, const Signature& signature, std::span<const std::int64_t> inputs,
             std::span<const std::int64_t> outputs);

inline constexpr std::int64_t kNoAxis = -1;

/// The gradient face of piecewise constant operators such as comparisons: none passes.
inline void flat(Differentiator& /*d*/) {}

/// All operators, sorted by kind.
const std::vector<Operator>& all_operators();

/// The operator of that kind, or null.
const Operator* find_operator(std::string_view kind);

/// One operation, as its operator's gradient face sees it.
class Differentiator {
 public:
  Differentiator() = default;
  Differentiator(const Differentiator&) = delete;
  Differentiator& operator=(const Differentiator&) = delete;
  virtual ~Differentiator() = default;

  [[nodiscard]] virtual const Operation& operation() const = 0;
  [[nodiscard]] virtual const TensorType& type(TensorId id) const = 0;

  /// True if the gradient with respect to input i is needed.
  [[nodiscard]] virtual bool wants(std::size_t input) const = 0;

  /// The gradient of the loss with respect to output i; zeros if the loss does not depend on it.
  virtual TensorId output_gradient(std::size_t output) = 0;

  /// Adds a contribution to the gradient of input i.
  virtual void set_input_gradient(std::size_t input, TensorId gradient) = 0;

  /// The gradient that other uses of input i have contributed so far, or nothing; nothing for a parameter, whose uses
  /// have separate gradients. For an operator that adds its own contribution to it: the value is removed, so the
  /// operator must set the sum.
  virtual std::optional<TensorId> take_input_gradient(std::size_t input) = 0;

  /// Adds an operation. Output k is the gradient of this operation's input of_input[k].
  virtual std::vector<TensorId> add(std::string kind, std::vector<TensorId> inputs, Attributes attributes,
                                    const std::vector<std::size_t>& of_input) = 0;
};

/// Name and version of the library that computes the heavy numerics.
std::string numerics_library_version();

/// `{kind}: {what}` as a kUsage error, for shape faces.
tl::unexpected<Error> shape_error(std::string_view kind, const Signature& signature, std::string_view needed);

/// The type in which one use computes: float16 if all tensors but scalars and statistics are stored so, that is, the
/// first input and the first output; with the attribute `partials` its sums too.
Arithmetic arithmetic_of(const Signature& signature);

/// Work of an elementwise operator: every operand is moved once, with `flops` per output element.
Work elementwise_work(const Signature& signature, std::int64_t flops);

}  // namespace poprun
