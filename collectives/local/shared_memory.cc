#include "collectives/local/shared_memory.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace poprun::collectives {
namespace {

std::string failed(const std::string& what, Bytes size) {
  return what + " of " + std::to_string(size.count()) +
         " B of memory for the exchange failed: " + std::strerror(errno);
}

}  // namespace

SharedMemory::~SharedMemory() {
  close_file();
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

Result<SharedMemory> SharedMemory::create_for_threads(Bytes size) {
  SharedMemory memory;
  POPRUN_TRY(memory.map(size, MAP_PRIVATE | MAP_ANONYMOUS));
  return memory;
}

Result<SharedMemory> SharedMemory::create_for_processes(Bytes size) {
  SharedMemory memory;
  memory.file_ = ::memfd_create("poprun-exchange", MFD_CLOEXEC);
  if (memory.file_ < 0) {
    return fail(ErrorCode::kHostResources,
                failed("creation", size) +
                    "; check ulimit -n, or use --num-instances 1, which needs no file");
  }
  if (::ftruncate(memory.file_, size.count()) != 0) {
    return fail(ErrorCode::kHostResources, failed("sizing", size) + "; check ulimit -f");
  }
  POPRUN_TRY(memory.map(size, MAP_SHARED));
  return memory;
}

Result<SharedMemory> SharedMemory::open(FileAddress address, Bytes size) {
  const std::string path =
      "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
  SharedMemory memory;
  memory.file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (memory.file_ < 0) {
    const bool lacks = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
    return fail(lacks ? ErrorCode::kHostResources : ErrorCode::kUnreachable,
                failed("opening " + path, size) +
                    "; processes on one host must run as one user in the same pid namespace");
  }
  struct stat status {};
  if (::fstat(memory.file_, &status) != 0 || status.st_size != size.count()) {
    return fail(ErrorCode::kUnreachable,
                path + " holds " + std::to_string(status.st_size) +
                    " B, but the peer's memory has " + std::to_string(size.count()) +
                    " B; check that the processes are in the same pid namespace");
  }
  POPRUN_TRY(memory.map(size, MAP_SHARED));
  memory.close_file();
  return memory;
}

FileAddress SharedMemory::address() const {
  return file_ < 0 ? FileAddress{} : FileAddress{::getpid(), file_};
}

void SharedMemory::close_file() {
  if (file_ >= 0) {
    ::close(file_);
    file_ = -1;
  }
}

Status SharedMemory::map(Bytes size, int flags) {
  const auto length = static_cast<std::size_t>(size.count());
  void* data = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, file_, 0);
  if (data == MAP_FAILED) {  // NOLINT: the macro casts an integer to a pointer.
    return fail(ErrorCode::kHostResources, failed("mapping", size) + "; check ulimit -v");
  }
  data_ = static_cast<std::byte*>(data);
  size_ = length;
  return {};
}

void SharedMemory::swap(SharedMemory& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
}

}  // namespace poprun::collectives
