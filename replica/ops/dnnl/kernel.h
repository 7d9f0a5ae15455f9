#pragma once

#include <unordered_map>

#include <dnnl.hpp>

#include "replica/ops/face/operator.h"

/// Kernels that run oneDNN on one thread, on the caller's memory and with the caller's scratchpad.
namespace poprun {

/// Returns the CPU engine that all kernels share. It is immutable, except for oneDNN's cache of compiled kernels.
const dnnl::engine& dnnl_cpu();

/// Return a tensor's memory descriptor: as stored in device memory, or with a layout that oneDNN is free to choose.
dnnl::memory::desc dnnl_desc(const TensorType& type);
dnnl::memory::desc dnnl_desc_any(const TensorType& type);

/// Runs a oneDNN primitive on device tensors. It reorders arguments in scratch if oneDNN needs a different layout.
class DnnlKernel final : public Kernel {
 public:
  struct Argument {
    int dnnl_argument;  ///< DNNL_ARG_SRC, ...
    bool output;
    std::size_t operand;        ///< Index in Operands::inputs or outputs.
    dnnl::memory::desc stored;  ///< As stored in device memory.
    dnnl::memory::desc wanted;  ///< As the primitive expects it.
  };

  /// `scratchpad` describes the scratchpad that the primitive needs (scratchpad_mode::user).
  DnnlKernel(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad, const std::vector<Argument>& arguments);

  void run(const Operands& operands) override;
  [[nodiscard]] Bytes scratch() const override { return scratch_; }

 private:
  struct Slot {
    bool output;
    std::size_t operand;
    dnnl::memory stored;
    dnnl::memory wanted;          ///< Same as `stored` if no reorder is needed.
    std::int64_t scratch_offset;  ///< Offset of `wanted`; negative if no reorder is needed.
    dnnl::reorder reorder;
  };

  Bytes reserve(const dnnl::memory::desc& desc);

  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::vector<Slot> slots_;
  dnnl::memory scratchpad_;
  std::int64_t scratchpad_offset_ = 0;
  std::unordered_map<int, dnnl::memory> arguments_;
  Bytes scratch_;
};

dnnl::primitive_attr dnnl_attributes();

}  // namespace poprun
