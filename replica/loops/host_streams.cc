#include "replica/loops/host_streams.h"

#include <cstring>

#include <fmt/format.h>

#include "replica/base/half.h"

namespace poprun {
namespace {

void copy_bytes(std::span<const char> from, std::span<std::byte> to) {
  POPRUN_CHECK(from.size() == to.size());
  std::memcpy(to.data(), from.data(), to.size());
}

/// Row-major float32 bytes into a tensor, rounded where it is float16.
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

}  // namespace

std::vector<NamedBytes> named_bytes(std::span<const HostTensor> tensors) {
  std::vector<NamedBytes> named;
  named.reserve(tensors.size());
  for (const HostTensor& tensor : tensors) {
    named.push_back({tensor.name, tensor.bytes});
  }
  return named;
}

Status write_weights(const HostWeights& weights, Communicator& communicator,
                     std::span<const HostTensor> tensors) {
  for (const HostTensor& tensor : tensors) {
    if (communicator.self() == ReplicaId{0}) {
      const auto found = weights.find(tensor.name);
      POPRUN_CHECK(found != weights.end() &&
                   found->second.size() ==
                       static_cast<std::size_t>(tensor.type.elements()) * sizeof(float));
      store(found->second, tensor);
    }
    POPRUN_TRY(communicator.broadcast(tensor.bytes, ReplicaId{0}, tensor.name));
  }
  return {};
}

Status refuse_stream(const std::string& stream) {
  return fail(ErrorCode::kBug,
              fmt::format("the Program uses host stream '{}', which its loop does not serve there",
                          stream));
}

}  // namespace poprun
