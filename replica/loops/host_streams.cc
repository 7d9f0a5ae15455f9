#include "replica/loops/host_streams.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "replica/base/half.h"
#include "replica/base/text.h"

namespace poprun {
namespace {

void copy_bytes(std::span<const char> from, std::span<std::byte> to) {
  POPRUN_CHECK(from.size() == to.size());
  std::memcpy(to.data(), from.data(), to.size());
}

/// Stores row-major float32 bytes in a tensor, rounded if the tensor is float16.
void store(std::span<const char> from, const HostTensor& to) {
  if (to.type.data != DataType::kF16) {
    copy_bytes(from, to.bytes);
    return;
  }
  std::vector<float> wide(from.size() / sizeof(float));
  std::memcpy(wide.data(), from.data(), from.size());
  // NOLINTNEXTLINE: the bytes of an f16 tensor.
  to_halves(wide.data(), reinterpret_cast<Half*>(to.bytes.data()), wide.size());
}

using Steps = google::protobuf::RepeatedPtrField<proto::Step>;

/// Returns the steps that read part of each batch.
std::vector<const proto::StreamIn*> readers_of(const Steps& steps, std::string_view stream) {
  std::vector<const proto::StreamIn*> readers;
  for (const proto::Step& step : steps) {
    const auto inner = readers_of(step.repeat().steps(), stream);
    readers.insert(readers.end(), inner.begin(), inner.end());
    if (step.has_stream_in() && step.stream_in().stream() == stream) {
      readers.push_back(&step.stream_in());
    }
  }
  return readers;
}

/// Returns the number of tensors that this reader needs in a batch; a full batch has the maximum over all readers.
std::size_t tensors_of_batch(const proto::StreamIn& reader) {
  const auto& fields = reader.fields();
  return fields.empty() ? static_cast<std::size_t>(reader.tensors_size())
                        : *std::ranges::max_element(fields) + std::size_t{1};
}

}  // namespace

Status share_bytes(std::string& bytes, ReplicaId root, Communicator& communicator, std::string_view name) {
  std::uint64_t size = bytes.size();
  POPRUN_TRY(
      communicator.broadcast(std::as_writable_bytes(std::span(&size, 1)), root, fmt::format("size of {}", name)));
  bytes.resize(size);
  return communicator.broadcast(std::as_writable_bytes(std::span(bytes)), root, name);
}

std::vector<NamedBytes> named_bytes(std::span<const HostTensor> tensors) {
  std::vector<NamedBytes> named;
  named.reserve(tensors.size());
  for (const HostTensor& tensor : tensors) {
    named.push_back({tensor.name, tensor.bytes});
  }
  return named;
}

Status write_weights(const HostWeights& weights, Communicator& communicator, std::span<const HostTensor> tensors) {
  for (const HostTensor& tensor : tensors) {
    if (communicator.self() == ReplicaId{0}) {
      const auto found = weights.find(tensor.name);
      POPRUN_CHECK(found != weights.end() &&
                   found->second.size() == static_cast<std::size_t>(tensor.type.elements()) * sizeof(float));
      store(found->second, tensor);
    }
    POPRUN_TRY(communicator.broadcast(tensor.bytes, ReplicaId{0}, tensor.name));
  }
  return {};
}

Status refuse_stream(const std::string& stream) {
  return fail(ErrorCode::kBug,
              fmt::format("the Program uses host stream '{}', which its loop does not serve at this point", stream));
}

BatchWindow::BatchWindow(const Program& program, JobStream stream, HostStream& source)
    : source_(source), pieces_(std::max(program.compute_batches(), 1U)) {
  for (const proto::Function& function : program.functions()) {
    for (const proto::StreamIn* reader : readers_of(function.steps(), name_of(stream))) {
      ++readers_;
      tensors_ = std::max(tensors_, tensors_of_batch(*reader));
    }
  }
}

void BatchWindow::begin() {
  first_ = 0;
  window_.clear();
}

Status BatchWindow::fetch(std::uint64_t count) {
  while (first_ + window_.size() < count) {
    POPRUN_ASSIGN(HostBatch batch, source_.next());
    if (batch.tensors.size() != tensors_) {
      return fail(ErrorCode::kData, fmt::format("batch {} from the data server has {}, but the model needs {}; serve "
                                                "the dataset of this job",
                                                batch.sequence, counted(batch.tensors.size(), "tensor"), tensors_));
    }
    window_.push_back({std::move(batch), readers_ * pieces_});
  }
  return {};
}

Status BatchWindow::write(const StreamPart& part) {
  const std::uint64_t number = part.micro_batch / pieces_;
  POPRUN_TRY(fetch(number + 1));
  POPRUN_CHECK(number >= first_);
  Entry& entry = window_[number - first_];
  for (std::size_t k = 0; k < part.tensors.size(); ++k) {
    const HostTensor& tensor = part.tensors[k];
    const std::size_t field = part.fields.empty() ? k : part.fields[k];
    const HostBytes& bytes = entry.batch.tensors.at(field);
    const std::size_t size = tensor.bytes.size();
    if (bytes.size() != size * pieces_) {
      return fail(ErrorCode::kData,
                  fmt::format("batch {} from the data server: tensor '{}' has {} B, but the model needs "
                              "{} B ({}{})",
                              entry.batch.sequence, tensor.name, bytes.size(), size * pieces_,
                              pieces_ > 1 ? fmt::format("{} of ", pieces_) : "", to_text(tensor.type)));
    }
    bytes.copy(part.micro_batch % pieces_ * size, tensor.bytes);
  }
  --entry.readers;
  while (!window_.empty() && window_.front().readers == 0) {
    window_.pop_front();
    ++first_;
  }
  return {};
}

}  // namespace poprun
