#pragma once

#include <cstddef>
#include <ostream>
#include <span>
#include <vector>

#include "replica/ports/communicator.h"

namespace poprun::contract {

/// One requirement on a Communicator. Called once per replica, each in its own thread or process, on a fresh
/// communicator.
struct Sentence {
  const char* name;
  void (*check)(Communicator& world);
};

/// Prints a sentence as the parameter of a GoogleTest suite.
inline void PrintTo(const Sentence& sentence, std::ostream* stream) {
  *stream << sentence.name;
}

inline std::span<float> as_floats(std::span<std::byte> bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

inline Status all_reduce(Communicator& world, Reduction reduction, std::span<float> data) {
  const Buffer buffer = Buffer::of(data);
  return world.all_reduce(reduction, std::span(&buffer, 1));
}

inline Status all_reduce(Communicator& world, Reduction reduction, std::span<const std::span<float>> data) {
  std::vector<Buffer> buffers;
  for (const std::span<float> floats : data) {
    buffers.push_back(Buffer::of(floats));
  }
  return world.all_reduce(reduction, buffers);
}

inline Status reduce_scatter(Communicator& world, Reduction reduction, std::span<const float> data,
                             std::span<float> shard) {
  return world.reduce_scatter(reduction, ElementType::kF32, std::as_bytes(data), std::as_writable_bytes(shard));
}

inline std::size_t self_of(const Communicator& world) {
  return index_of(world.self());
}

}  // namespace poprun::contract
