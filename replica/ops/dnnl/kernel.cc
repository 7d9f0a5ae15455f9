#include "replica/ops/dnnl/kernel.h"

namespace poprun {
namespace {

constexpr Bytes kAlignment{64};

dnnl::memory::data_type dnnl_type(DataType type) {
  switch (type) {
    case DataType::kF32:
      return dnnl::memory::data_type::f32;
    case DataType::kF16:
      return dnnl::memory::data_type::f16;
    case DataType::kI32:
      return dnnl::memory::data_type::s32;
    case DataType::kU8:
      return dnnl::memory::data_type::u8;
  }
  return dnnl::memory::data_type::undef;
}

void* mutable_address(const std::byte* address) {
  return const_cast<std::byte*>(address);  // NOLINT: oneDNN does not write through inputs.
}

}  // namespace

const dnnl::engine& dnnl_cpu() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

std::string numerics_library_version() {
  const dnnl_version_t& version = *dnnl_version();
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch);
}

dnnl::primitive_attr dnnl_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::memory::desc dnnl_desc(const TensorType& type) {
  const dnnl::memory::dims& dims = type.shape;
  if (type.layout == Layout::kChannelsLast) {
    return {dims, dnnl_type(type.data), dnnl::memory::format_tag::nhwc};
  }
  return {dims, dnnl_type(type.data), strides_of(dims)};
}

dnnl::memory::desc dnnl_desc_any(const TensorType& type) {
  return {type.shape, dnnl_type(type.data), dnnl::memory::format_tag::any};
}

DnnlKernel::DnnlKernel(dnnl::primitive primitive, const dnnl::memory::desc& scratchpad,
                       const std::vector<Argument>& arguments)
    : stream_(dnnl_cpu()), primitive_(std::move(primitive)) {
  for (const Argument& argument : arguments) {
    Slot slot{.output = argument.output,
              .operand = argument.operand,
              .stored = dnnl::memory(argument.stored, dnnl_cpu(), nullptr),
              .wanted = {},
              .scratch_offset = -1,
              .reorder = {}};
    slot.wanted = slot.stored;
    if (argument.stored != argument.wanted) {
      slot.wanted = dnnl::memory(argument.wanted, dnnl_cpu(), nullptr);
      slot.scratch_offset = reserve(argument.wanted).count();
      slot.reorder = slot.output ? dnnl::reorder(slot.wanted, slot.stored) : dnnl::reorder(slot.stored, slot.wanted);
    }
    arguments_.emplace(argument.dnnl_argument, slot.wanted);
    slots_.push_back(std::move(slot));
  }
  scratchpad_ = dnnl::memory(scratchpad, dnnl_cpu(), nullptr);
  scratchpad_offset_ = reserve(scratchpad).count();
  arguments_.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
}

Bytes DnnlKernel::reserve(const dnnl::memory::desc& desc) {
  const Bytes offset = scratch_;
  scratch_ += align_up(Bytes{static_cast<std::int64_t>(desc.get_size())}, kAlignment);
  return offset;
}

void DnnlKernel::run(const Operands& operands) {
  for (Slot& slot : slots_) {
    slot.stored.set_data_handle(slot.output ? operands.outputs[slot.operand]
                                            : mutable_address(operands.inputs[slot.operand]));
    if (slot.scratch_offset >= 0) {
      slot.wanted.set_data_handle(operands.scratch + slot.scratch_offset);
      if (!slot.output) {
        slot.reorder.execute(stream_, slot.stored, slot.wanted);
      }
    }
  }
  scratchpad_.set_data_handle(operands.scratch + scratchpad_offset_);
  primitive_.execute(stream_, arguments_);
  for (Slot& slot : slots_) {
    if (slot.output && slot.scratch_offset >= 0) {
      slot.reorder.execute(stream_, slot.wanted, slot.stored);
    }
  }
  stream_.wait();
}

}  // namespace poprun
