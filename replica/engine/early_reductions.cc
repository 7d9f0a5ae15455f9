#include "replica/engine/early_reductions.h"

#include <algorithm>
#include <optional>

#include "replica/machine/exchange.h"

namespace poprun {

EarlyReductions::EarlyReductions(const Program& program, const std::vector<TensorType>& types, const HostImages& images,
                                 Communicator& owners, const Options& options)
    : owners_(&owners), options_(options) {
  std::size_t bytes = 0;
  for (const proto::Function& function : program.functions()) {
    for (const proto::Step& step : function.steps()) {
      const std::optional<Reduction> reduction = parse_reduction(step.all_reduce().reduction());
      for (int k = 0; k < step.all_reduce().divisible_size(); ++k) {
        const std::uint32_t id = step.all_reduce().divisible(k);
        const std::optional<ElementType> type = element_type_of(types.at(id).data);
        if (reduction && type) {
          const std::string_view name = program.tensors(static_cast<int>(id)).name();
          divisible_[id] = {*reduction, {*type, images.of(id), name, step.all_reduce().owners(k)}};
          bytes += images.of(id).size();
        }
      }
    }
  }
  gives_back_ = bytes * owners.size() > kKeptBytes;
}

void EarlyReductions::add(std::span<const std::uint32_t> tensors) {
  for (const std::uint32_t tensor : tensors) {
    if (const auto found = divisible_.find(tensor); found != divisible_.end()) {
      waiting_.push_back(tensor);
      waiting_bytes_ += found->second.buffer.bytes.size();
    }
  }
}

Status EarlyReductions::reduce() {
  std::map<Reduction, std::vector<Buffer>> buffers;
  for (const std::uint32_t tensor : waiting_) {
    const auto& [reduction, buffer] = divisible_.at(tensor);
    buffers[reduction].push_back(buffer);
  }
  for (const auto& [reduction, all] : buffers) {
    POPRUN_TRY(owners_->reduce_to_owners(reduction, all));
    std::ranges::for_each(all, [this](const Buffer& buffer) { forget_others(buffer); });
  }
  reduced_.insert(reduced_.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  waiting_bytes_ = 0;
  return {};
}

void EarlyReductions::forget_others(const Buffer& buffer) const {
  const std::size_t width = size_of(buffer.type);
  const auto [begin, count] =
      owned_part(buffer.bytes.size() / width, owners_->size(), index_of(owners_->self()), buffer.owner);
  for (const std::span<std::byte> part :
       {buffer.bytes.first(begin * width), buffer.bytes.subspan((begin + count) * width)}) {
    if (options_.poison) {
      std::ranges::fill(part, std::byte{0xFF});
    } else if (gives_back_) {
      release_pages(part);
    }
  }
}

bool EarlyReductions::take(std::uint32_t tensor) {
  if (std::erase(waiting_, tensor) > 0) {
    waiting_bytes_ -= divisible_.at(tensor).buffer.bytes.size();
  }
  return std::erase(reduced_, tensor) > 0;
}

}  // namespace poprun
