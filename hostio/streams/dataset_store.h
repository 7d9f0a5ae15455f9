#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hostio/datasets/dataset.h"
#include "hostio/streams/worker.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// What a server serves, and how much of it at once.
struct StoreLimits {
  FileScope files;                   ///< Of every source.
  std::vector<std::string> sources;  ///< Whose files may lie anywhere, with or without parameters.
  /// All datasets together. One is always let in, however large it is for its host.
  std::uint64_t bytes_max = std::numeric_limits<std::uint64_t>::max();
  std::size_t datasets_max = 64;        ///< Likewise.
  std::size_t requests_max = 16'384;    ///< That wait to be loaded.
  std::size_t descriptions_max = 1024;  ///< That wait to be made.
};

/// The datasets of one server, each loaded at its first use and kept as long as there is room: the
/// ones that were not asked for the longest go first, and never one that is being read from. All
/// that nobody reads from go where a load lacks memory. A load that failed is tried again at the
/// next request.
///
/// Threads: any. Loads run one after another on a thread of the store's own, so that nobody who
/// asks for a loaded dataset waits for one that is not. So do descriptions, on another one, since
/// some take as much time and memory as a load: there is one load and one description at a time,
/// and each looks first whether this host has room for it.
class DatasetStore {
 public:
  /// Shared, because a stream may go on reading from a dataset that the store has let go.
  using Loaded = std::shared_ptr<const Dataset>;
  /// Called once; never when the store dies first.
  using Done = std::function<void(const Result<Loaded>&)>;
  /// Likewise.
  using Described = std::function<void(const Result<proto::Dataset>&)>;

  explicit DatasetStore(StoreLimits limits = {});
  DatasetStore(const DatasetStore&) = delete;
  DatasetStore& operator=(const DatasetStore&) = delete;

  /// Waits for what is running; forgets what has not begun.
  ~DatasetStore() = default;

  /// Hands what the dataset holds, as describe_dataset finds it, to `done`: later, and on the
  /// thread of descriptions. Never blocks.
  ///
  /// Errors: those of describe_dataset, and
  ///   kData           its description is larger than a message.
  ///   kHostResources  `descriptions_max` wait already; at once and on this thread.
  void describe_then(const std::string& source, Described done);

  /// `describe_then` for a caller that has time.
  Result<proto::Dataset> describe(const std::string& source);

  /// Hands the dataset to `done`: at once and on this thread where it is loaded, else later and on
  /// the store's thread. Never blocks.
  ///
  /// Errors: those of load_dataset, and
  ///   kHostResources  `requests_max` wait already, or those datasets that are being read from
  ///                   leave no room.
  void load_then(const std::string& source, Done done);

  /// Loads it for one who will ask soon, unless many others wait.
  void load_soon(const std::string& source);

  /// `load_then` for a caller that has time.
  Result<Loaded> load(const std::string& source);

 private:
  struct Entry {
    Loaded dataset;
    std::uint64_t used = 0;  ///< When it was last asked for, in requests.
  };

  [[nodiscard]] Result<proto::Dataset> describe_now(const std::string& source) const;
  Loaded find(const std::string& source);
  Result<Loaded> load_new(const std::string& source);
  bool let_idle_go();
  [[nodiscard]] bool fits(std::uint64_t bytes_max, std::size_t datasets_max) const;
  void make_room(std::uint64_t bytes_max, std::size_t datasets_max);
  [[nodiscard]] FileScope scope_of(const std::string& source) const;

  const StoreLimits limits_;
  std::mutex mutex_;
  std::map<std::string, Entry> datasets_;
  std::uint64_t requests_seen_ = 0;
  Worker loads_;  ///< With the next, the last members: their threads use those above.
  Worker descriptions_;
};

}  // namespace poprun::hostio
