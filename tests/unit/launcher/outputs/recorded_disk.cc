#include "tests/unit/launcher/outputs/recorded_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <utility>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace poprun::testing {
namespace {

namespace fs = std::filesystem;

RecordedDisk* recorder = nullptr;
std::recursive_mutex mutex;
thread_local bool is_inside = false;

/// While it exists, this thread's calls are not recorded.
class Unrecorded {
 public:
  Unrecorded() : before_(std::exchange(is_inside, true)) {}
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;
  ~Unrecorded() { is_inside = before_; }

 private:
  bool before_;
};

/// Returns the C library's function of this name.
template <typename Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));  // NOLINT: dlsym's contract.
}

std::string absolute(int folder, const char* path) {
  if (path[0] == '/' || folder == AT_FDCWD) {
    return fs::absolute(path).lexically_normal();
  }
  return (fs::read_symlink("/proc/self/fd/" + std::to_string(folder)) / path).lexically_normal();
}

std::string parent_of(const std::string& path) {
  return fs::path(path).parent_path();
}
std::string name_of(const std::string& path) {
  return fs::path(path).filename();
}

/// Runs `note` after a successful call on files of the recorder.
template <typename Call, typename Note>
auto recorded(Call call, Note note) {
  if (recorder == nullptr || is_inside) {
    return call();
  }
  const std::lock_guard lock(mutex);
  const Unrecorded unrecorded;
  const auto result = call();
  const int reason = errno;
  if (result >= 0 && recorder != nullptr) {
    note(result);
  }
  errno = reason;
  return result;
}

using Kind = RecordedDisk::Call::Kind;

void note_removal(const std::string& path) {
  if (recorder->covers(path)) {
    recorder->add({.kind = Kind::kRemove, .node = recorder->node_at(parent_of(path)), .name = name_of(path)});
  }
}

void note_rename(const std::string& from, const std::string& to, Kind kind) {
  if (recorder->covers(from)) {
    recorder->add({.kind = kind, .node = recorder->node_at(parent_of(from)), .name = name_of(from), .to = name_of(to)});
  }
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  const bool covered = recorder != nullptr && !is_inside && recorder->covers(absolute(folder, path));
  const bool is_new = covered && (flags & O_CREAT) != 0 && faccessat(folder, path, F_OK, 0) != 0;
  return recorded([&] { return real<int (*)(int, const char*, int, ...)>("openat")(folder, path, flags, mode); },
                  [&](int file) {
                    const std::string name = absolute(folder, path);
                    if (!covered || (flags & O_ACCMODE) == O_RDONLY) {
                      return;
                    }
                    if (is_new) {
                      const std::uint64_t parent = recorder->node_at(parent_of(name));
                      recorder->add({.kind = Kind::kCreate,
                                     .node = parent,
                                     .name = name_of(name),
                                     .child = recorder->node_at(name, /*is_new=*/true)});
                    } else if ((flags & O_TRUNC) != 0) {
                      recorder->add({.kind = Kind::kResize, .node = recorder->node_of(file)});
                    }
                  });
}

}  // namespace

RecordedDisk::RecordedDisk(std::string root) : root_(std::move(root)) {
  node_at(root_, /*is_new=*/true);
  recorder = this;
}

RecordedDisk::~RecordedDisk() {
  const std::lock_guard lock(mutex);
  recorder = nullptr;
}

bool RecordedDisk::covers(const std::string& path) const {
  return path == root_ || path.starts_with(root_ + "/");
}

std::uint64_t RecordedDisk::node_at(const std::string& path, bool is_new) {
  struct stat found {};
  stat(path.c_str(), &found);
  if (is_new || nodes_[found.st_ino] == 0) {
    nodes_[found.st_ino] = next_++;
  }
  return nodes_[found.st_ino];
}

std::uint64_t RecordedDisk::node_of(int file) {
  struct stat found {};
  fstat(file, &found);
  const auto known = nodes_.find(found.st_ino);
  return known == nodes_.end() ? 0 : known->second;
}

/// The files and folders of a disk, by node.
struct RecordedDisk::Image {
  std::map<std::uint64_t, std::map<std::string, std::uint64_t>> folders;
  std::map<std::uint64_t, std::string> files;

  void apply(const Call& call, std::size_t bytes) {
    const auto names_of_folder = [&]() -> std::map<std::string, std::uint64_t>& { return folders[call.node]; };
    switch (call.kind) {
      case Kind::kCreate:
        names_of_folder()[call.name] = call.child;
        call.is_folder ? void(folders[call.child]) : void(files[call.child]);
        break;
      case Kind::kRemove:
        names_of_folder().erase(call.name);
        break;
      case Kind::kRename:
        names_of_folder()[call.to] = names_of_folder()[call.name];
        names_of_folder().erase(call.name);
        break;
      case Kind::kExchange:
        std::swap(names_of_folder()[call.to], names_of_folder()[call.name]);
        break;
      case Kind::kWrite: {
        std::string& file = files[call.node];
        file.resize(std::max(file.size(), call.offset + bytes));
        file.replace(call.offset, bytes, call.bytes, 0, bytes);
        break;
      }
      case Kind::kResize:
        files[call.node].resize(call.offset);
        break;
      case Kind::kSync:
        break;
    }
  }
};

void RecordedDisk::crash(std::size_t count, std::mt19937_64& random, const std::string& to) const {
  std::map<std::uint64_t, std::vector<const Call*>> calls;  // Those of each node that a sync concerns.
  std::map<std::uint64_t, std::size_t> synced;
  for (std::size_t i = 0; i < count; ++i) {
    const Call& call = calls_[i];
    if (call.kind == Kind::kSync) {
      synced[call.node] = calls[call.node].size();
    } else {
      calls[call.node].push_back(&call);
    }
  }
  Image image;
  image.folders[1];
  for (const auto& [node, all] : calls) {
    const std::size_t certain = synced[node];
    const std::size_t kept = certain + random() % (all.size() - certain + 1);
    for (std::size_t i = 0; i < kept; ++i) {
      const bool is_torn = i >= certain && i + 1 == kept && random() % 2 == 0;
      image.apply(*all[i], is_torn ? random() % (all[i]->bytes.size() + 1) : all[i]->bytes.size());
    }
  }
  write(image, 1, to);
}

void RecordedDisk::copy(const std::string& to) const {
  Image image;
  image.folders[1];
  for (const Call& call : calls_) {
    image.apply(call, call.bytes.size());
  }
  write(image, 1, to);
}

void RecordedDisk::write(const Image& image, std::uint64_t node, const std::string& to) const {
  const Unrecorded unrecorded;
  if (const auto folder = image.folders.find(node); folder != image.folders.end()) {
    fs::create_directories(to);
    for (const auto& [name, child] : folder->second) {
      write(image, child, to + "/" + name);
    }
  } else if (const auto file = image.files.find(node); file != image.files.end()) {
    std::ofstream(to, std::ios::binary) << file->second;
  } else {
    std::ofstream{to};  // Created, but nothing of it has reached the disk.
  }
}

}  // namespace poprun::testing

using poprun::testing::absolute;
using poprun::testing::Kind;
using poprun::testing::real;
using poprun::testing::recorded;
using poprun::testing::recorder;

// NOLINTBEGIN: these are the C library's names.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return poprun::testing::open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return poprun::testing::open_at(folder, path, flags, mode);
}

ssize_t pwrite(int file, const void* bytes, size_t size, off_t offset) {
  return recorded(
      [&] { return real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite")(file, bytes, size, offset); },
      [&](ssize_t written) {
        if (const std::uint64_t node = recorder->node_of(file); node != 0) {
          recorder->add({.kind = Kind::kWrite,
                         .node = node,
                         .offset = static_cast<std::uint64_t>(offset),
                         .bytes = {static_cast<const char*>(bytes), static_cast<std::size_t>(written)}});
        }
      });
}

ssize_t write(int file, const void* bytes, size_t size) {
  return recorded([&] { return real<ssize_t (*)(int, const void*, size_t)>("write")(file, bytes, size); },
                  [&](ssize_t written) {
                    if (const std::uint64_t node = recorder->node_of(file); node != 0) {
                      const off_t end = lseek(file, 0, SEEK_CUR);
                      recorder->add({.kind = Kind::kWrite,
                                     .node = node,
                                     .offset = static_cast<std::uint64_t>(end - written),
                                     .bytes = {static_cast<const char*>(bytes), static_cast<std::size_t>(written)}});
                    }
                  });
}

/// Not available, so that std::filesystem::copy_file writes what it copies.
ssize_t sendfile(int /*to*/, int /*from*/, off_t* /*offset*/, size_t /*count*/) noexcept {
  errno = EINVAL;
  return -1;
}

int ftruncate(int file, off_t size) noexcept {
  return recorded([&] { return real<int (*)(int, off_t)>("ftruncate")(file, size); },
                  [&](int) {
                    if (const std::uint64_t node = recorder->node_of(file); node != 0) {
                      recorder->add({.kind = Kind::kResize, .node = node, .offset = static_cast<std::uint64_t>(size)});
                    }
                  });
}

int fallocate(int file, int mode, off_t offset, off_t size) {
  return recorded(
      [&] { return real<int (*)(int, int, off_t, off_t)>("fallocate")(file, mode, offset, size); },
      [&](int) {
        if (const std::uint64_t node = recorder->node_of(file); node != 0) {
          recorder->add({.kind = Kind::kResize, .node = node, .offset = static_cast<std::uint64_t>(offset + size)});
        }
      });
}

/// Only recorded: the machine does not crash in earnest, and a disk would take most of the tests' time.
int fsync(int file) {
  return recorded([&] { return fcntl(file, F_GETFD) < 0 ? -1 : 0; },
                  [&](int) {
                    if (const std::uint64_t node = recorder->node_of(file); node != 0) {
                      recorder->add({.kind = Kind::kSync, .node = node});
                    }
                  });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return recorded([&] { return real<int (*)(const char*, mode_t)>("mkdir")(path, mode); },
                  [&](int) {
                    const std::string name = absolute(AT_FDCWD, path);
                    if (recorder->covers(name)) {
                      const std::uint64_t parent = recorder->node_at(poprun::testing::parent_of(name));
                      recorder->add({.kind = Kind::kCreate,
                                     .node = parent,
                                     .name = poprun::testing::name_of(name),
                                     .child = recorder->node_at(name, /*is_new=*/true),
                                     .is_folder = true});
                    }
                  });
}

int rename(const char* from, const char* to) noexcept {
  return recorded(
      [&] { return real<int (*)(const char*, const char*)>("rename")(from, to); },
      [&](int) { poprun::testing::note_rename(absolute(AT_FDCWD, from), absolute(AT_FDCWD, to), Kind::kRename); });
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return recorded(
      [&] {
        return real<int (*)(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from, to_folder,
                                                                                        to, flags);
      },
      [&](int) {
        poprun::testing::note_rename(absolute(from_folder, from), absolute(to_folder, to), Kind::kExchange);
      });
}

int unlink(const char* path) noexcept {
  return recorded([&] { return real<int (*)(const char*)>("unlink")(path); },
                  [&](int) { poprun::testing::note_removal(absolute(AT_FDCWD, path)); });
}

int rmdir(const char* path) noexcept {
  return recorded([&] { return real<int (*)(const char*)>("rmdir")(path); },
                  [&](int) { poprun::testing::note_removal(absolute(AT_FDCWD, path)); });
}

int remove(const char* path) noexcept {
  return recorded([&] { return real<int (*)(const char*)>("remove")(path); },
                  [&](int) { poprun::testing::note_removal(absolute(AT_FDCWD, path)); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  const std::string name = recorder != nullptr && !poprun::testing::is_inside ? absolute(folder, path) : "";
  return recorded([&] { return real<int (*)(int, const char*, int)>("unlinkat")(folder, path, flags); },
                  [&](int) { poprun::testing::note_removal(name); });
}

}  // extern "C"
// NOLINTEND
