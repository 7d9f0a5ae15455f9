#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace poprun::hostio {

/// Reads FlatBuffers (flatbuffers.dev/internals) without generated code. A value outside the buffer reads as if it were
/// absent, and sets `is_damaged`.
class FlatBuffer {
 public:
  explicit FlatBuffer(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] bool is_damaged() const { return is_damaged_; }

  /// Reads a little-endian scalar.
  template <typename T>
  T at(std::uint64_t offset) {
    T value{};
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) {
      is_damaged_ = true;
      return value;
    }
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  /// The position to which the 32-bit offset at `offset` points.
  std::uint64_t follow(std::uint64_t offset) { return offset + at<std::uint32_t>(offset); }

  [[nodiscard]] std::string_view text(std::uint64_t offset, std::uint64_t size) {
    if (offset > bytes_.size() || bytes_.size() - offset < size) {
      is_damaged_ = true;
      return {};
    }
    return {reinterpret_cast<const char*>(bytes_.data()) + offset, size};
  }

  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool is_damaged_ = false;
};

/// A vector in a buffer: its entries begin at `begin`.
struct FlatVector {
  std::uint64_t begin = 0;
  std::uint32_t count = 0;
};

/// A table in a buffer; position 0 is an absent table, whose fields are absent.
class FlatTable {
 public:
  FlatTable(FlatBuffer& buffer, std::uint64_t position) : buffer_(&buffer), position_(position) {}

  static FlatTable root(FlatBuffer& buffer) { return {buffer, buffer.follow(0)}; }

  [[nodiscard]] bool is_present() const { return position_ != 0; }

  template <typename T>
  T scalar(unsigned field, T fallback = {}) {
    const std::uint64_t place = place_of(field);
    return place == 0 ? fallback : buffer_->at<T>(place);
  }
  FlatTable table(unsigned field) {
    const std::uint64_t place = place_of(field);
    return {*buffer_, place == 0 ? 0 : buffer_->follow(place)};
  }
  std::string_view text(unsigned field) {
    const FlatVector bytes = vector(field, 1);
    return buffer_->text(bytes.begin, bytes.count);
  }
  /// Returns a vector of entries of `entry_bytes`, which are all inside the buffer.
  FlatVector vector(unsigned field, std::uint64_t entry_bytes) {
    const std::uint64_t place = place_of(field);
    if (place == 0) {
      return {};
    }
    const std::uint64_t begin = buffer_->follow(place);
    const FlatVector entries{.begin = begin + 4, .count = buffer_->at<std::uint32_t>(begin)};
    (void)buffer_->text(entries.begin, entries.count * entry_bytes);
    return buffer_->is_damaged() ? FlatVector{} : entries;
  }
  /// Returns a table of a vector of tables.
  FlatTable entry(const FlatVector& tables, std::uint32_t index) {
    return {*buffer_, buffer_->follow(tables.begin + std::uint64_t{4} * index)};
  }

 private:
  /// Returns where a field is; 0 if it is absent.
  std::uint64_t place_of(unsigned field) {
    if (position_ == 0) {
      return 0;
    }
    const std::uint64_t fields =
        position_ - static_cast<std::uint64_t>(std::int64_t{buffer_->at<std::int32_t>(position_)});
    const unsigned slot = 4 + 2 * field;
    if (slot >= buffer_->at<std::uint16_t>(fields)) {
      return 0;
    }
    const auto offset = buffer_->at<std::uint16_t>(fields + slot);
    return offset == 0 ? 0 : position_ + offset;
  }

  FlatBuffer* buffer_;
  std::uint64_t position_;
};

}  // namespace poprun::hostio
