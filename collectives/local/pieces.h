#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace poprun::collectives {

/// Several buffers as one vector of bytes: byte i lies in the first piece that the ones before it
/// leave it in. For exchanges that copy through a staging area of another shape.
class Pieces {
 public:
  Pieces() = default;
  explicit Pieces(std::span<const std::span<float>> buffers);
  explicit Pieces(std::span<std::byte> buffer) : pieces_{buffer}, size_(buffer.size()) {}

  void append(std::span<float> buffer);

  [[nodiscard]] std::size_t size() const { return size_; }

  /// to = bytes [begin, begin + to.size()). Requires: they exist.
  void copy_out(std::size_t begin, std::span<std::byte> to) const;

  /// Bytes [begin, begin + from.size()) = from. Requires: they exist.
  void copy_in(std::size_t begin, std::span<const std::byte> from) const;

 private:
  template <typename Copy>
  void for_each_part(std::size_t begin, std::size_t count, const Copy& copy) const;

  std::vector<std::span<std::byte>> pieces_;
  std::size_t size_ = 0;
};

}  // namespace poprun::collectives
