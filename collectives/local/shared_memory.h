#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "replica/base/error.h"
#include "replica/base/units.h"

namespace poprun::collectives {

/// Where another process on this machine finds an in-memory file.
struct FileAddress {
  std::int64_t process = -1;     ///< Process id, as seen from the opener's pid namespace.
  std::int64_t descriptor = -1;  ///< File descriptor in that process.
};

/// A mapping of zeroed memory, unmapped by the destructor. Sparse: a page costs nothing until it is
/// touched, so sizes far above the machine's memory are fine, and creation takes microseconds.
///
/// Errors
///   kHostResources  the system refused the mapping or the file; names size, reason and remedy.
///   kUnreachable    another process's memory cannot be opened or has an unexpected size.
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

  /// Memory that other processes can open while `address()` is valid. It is a memfd and not a file
  /// in /dev/shm, because many containers limit /dev/shm to 64 MiB.
  static Result<SharedMemory> create_for_processes(Bytes size);

  /// Maps the memory that another process created with this size.
  static Result<SharedMemory> open(FileAddress address, Bytes size);

  /// This process's descriptor; invalid if there is none.
  [[nodiscard]] FileAddress address() const;

  /// Closes the descriptor. The mapping stays; later `open`s fail.
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
