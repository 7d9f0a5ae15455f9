#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "replica/base/error.h"

namespace poprun {

/// Bytes that are still in the pieces of memory in which they arrived, so that `copy` is the first copy.
class HostBytes {
 public:
  /// `owner` keeps the pieces alive that `add` adds.
  explicit HostBytes(std::shared_ptr<const void> owner) : owner_(std::move(owner)) {}
  HostBytes(std::string bytes) {  // NOLINT(google-explicit-constructor): a string is bytes, too.
    auto owned = std::make_shared<const std::string>(std::move(bytes));
    add(std::as_bytes(std::span(*owned)));
    owner_ = std::move(owned);
  }

  void add(std::span<const std::byte> piece) {
    pieces_.push_back(piece);
    size_ += piece.size();
  }

  [[nodiscard]] std::size_t size() const { return size_; }

  /// Copies the bytes from `begin` on. Requires: begin + out.size() <= size().
  void copy(std::size_t begin, std::span<std::byte> out) const {
    POPRUN_CHECK(begin <= size_ && out.size() <= size_ - begin);
    for (auto piece = pieces_.begin(); !out.empty(); ++piece) {
      if (begin >= piece->size()) {
        begin -= piece->size();
        continue;
      }
      const std::size_t count = std::min(piece->size() - begin, out.size());
      std::memcpy(out.data(), piece->data() + begin, count);
      out = out.subspan(count);
      begin = 0;
    }
  }

  /// Returns a copy of all bytes.
  [[nodiscard]] std::string text() const {
    std::string all(size_, '\0');
    copy(0, std::as_writable_bytes(std::span(all)));
    return all;
  }

 private:
  std::shared_ptr<const void> owner_;
  std::vector<std::span<const std::byte>> pieces_;
  std::size_t size_ = 0;
};

/// One batch from the host: each tensor's row-major little-endian bytes.
struct HostBatch {
  std::uint64_t sequence = 0;
  std::vector<HostBytes> tensors;
};

/// A replica's host stream, which prefetches batches and returns them in order, without gaps. `hostio/` implements it
/// with gRPC. It belongs to one thread.
class HostStream {
 public:
  HostStream() = default;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  virtual ~HostStream() = default;

  /// Returns the next batch. Waits for it, even while the data server is lost, up to the configured time. Errors:
  /// kUnreachable if no server answered in that time (the message names the address and the time); kData, with the
  /// server's message, if the server refused because the dataset is missing or damaged.
  virtual Result<HostBatch> next() = 0;
};

}  // namespace poprun
