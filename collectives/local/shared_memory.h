#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun::collectives {

/// Where another process of this machine finds a file in memory.
struct FileAddress {
  std::int64_t process = -1;     ///< Process id, as seen from the opener's pid namespace.
  std::int64_t descriptor = -1;  ///< Open file of that process.
};

/// A mapping of zeroed memory, unmapped at the end of its life. Sparse: a page costs nothing until
/// it is touched, so sizes far above the machine's memory are fine, and creation takes
/// microseconds.
///
/// Errors
///   kHostResources  the system refused the mapping or the file; names size, reason and remedy.
///   kUnreachable    another process's memory cannot be opened, or is not what it should be.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    swap(other);
    return *this;
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// Memory for the threads of this process.
  static Result<SharedMemory> create_for_threads(Bytes size);

  /// Memory that other processes can open while `address()` is valid. A memfd rather than a file
  /// in /dev/shm, whose size is limited to 64 MiB in many containers.
  static Result<SharedMemory> create_for_processes(Bytes size);

  /// The memory that another process has created with this size.
  static Result<SharedMemory> open(FileAddress address, Bytes size);

  /// This process's descriptor; invalid where there is none.
  [[nodiscard]] FileAddress address() const;

  /// Closes the descriptor. The mapping stays, further `open`s fail.
  void close_file();

  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Status map(Bytes size, int flags);
  void swap(SharedMemory& other) noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int file_ = -1;
};

}  // namespace poprun::collectives
