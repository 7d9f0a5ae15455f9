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
#include "hostio/streams/workers.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// What a server serves, and how much of it at once.
struct StoreLimits {
  FileScope files;                   ///< Of every source.
  std::vector<std::string> sources;  ///< Whose files may lie anywhere, with or without parameters.
  /// All that is stored together. One is always let in, however large it is for its host.
  std::uint64_t bytes_max = std::numeric_limits<std::uint64_t>::max();
  std::size_t datasets_max = 64;         ///< Likewise.
  std::size_t requests_max = 16'384;     ///< That wait to be loaded.
  std::size_t descriptions_max = 1024;   ///< That wait to be made.
  std::size_t loads_at_once = 4;         ///< Files of so many datasets are read at a time,
  std::size_t descriptions_at_once = 4;  ///< and of so many to describe them.
};

/// What a server keeps of the files of datasets. It is known by the contents of the files, not by
/// their name alone: a job gets the data that was described to it, or an error. Files that were
/// replaced are read again and stored beside what they held before.
///
/// Datasets that nobody has requested for the longest time are dropped first, never one in use; a
/// load that lacks memory drops all idle ones. A load that failed is tried again at the next
/// request.
///
/// Threads: any. Loads and descriptions run on threads of the store's own, a few at a time, so that
/// a large dataset does not hold up the others. Each looks first whether this host has room for it.
class DatasetStore {
 public:
  /// Shared, because a stream may go on reading from a dataset that the store has let go.
  using Loaded = std::shared_ptr<const Dataset>;
  /// Called once; never when the store dies first.
  using Done = std::function<void(Result<Loaded>)>;
  /// Likewise.
  using Described = std::function<void(const Result<proto::Dataset>&)>;

  explicit DatasetStore(StoreLimits limits = {});
  DatasetStore(const DatasetStore&) = delete;
  DatasetStore& operator=(const DatasetStore&) = delete;

  /// Waits for what is running; forgets what has not begun.
  ~DatasetStore() = default;

  /// Hands what the dataset holds now, as describe_dataset finds it, to `done`: later, and on a
  /// thread of descriptions. Never blocks.
  ///
  /// Errors: those of describe_dataset, and
  ///   kData           its description is larger than a message.
  ///   kHostResources  `descriptions_max` wait already; at once and on this thread.
  void describe_then(const std::string& source, bool with_fingerprint, Described done);

  /// `describe_then` for a caller that has time, with fingerprint.
  Result<proto::Dataset> describe(const std::string& source);

  /// Hands the dataset that was described with this fingerprint to `done`: at once and on this
  /// thread if it is stored, else later and on a thread of loads. Never blocks. Without a
  /// fingerprint: what its files hold now.
  ///
  /// Errors: those of load_dataset, and
  ///   kData           the files hold something else than what was described.
  ///   kHostResources  `requests_max` wait already, or those datasets that are being read from
  ///                   leave no room.
  void load_then(const std::string& source, const std::string& fingerprint, Done done);

  /// Loads it for one who will ask soon, unless many others wait.
  void load_soon(const std::string& source, const std::string& fingerprint);

  /// `load_then` for a caller that has time.
  Result<Loaded> load(const std::string& source, const std::string& fingerprint = "");

  /// How far the description or load of a source is that somebody waits for.
  proto::Loading describing(const std::string& source);
  proto::Loading loading(const std::string& source);

 private:
  /// Something that is stored, by its stored_name.
  struct Entry {
    std::string name;
    ReadDataset read;
    std::uint64_t used = 0;  ///< When it was last asked for, in requests.
  };

  struct Request {
    std::string source;
    std::string fingerprint;
    Done done;
    bool came_late = false;  ///< After the load had begun, which may have read older files.
  };

  /// A load that is under way or waits to begin, and all who wait for it.
  struct Load {
    std::shared_ptr<Reading> reading;
    std::vector<Request> requests;
  };

  [[nodiscard]] Result<proto::Dataset> describe_now(const std::string& source,
                                                    bool with_fingerprint,
                                                    const std::shared_ptr<Reading>& reading) const;
  Result<Loaded> find(const std::string& source, const std::string& fingerprint);
  void load_now(const std::string& name);
  Result<ReadDataset> read_now(const std::string& source, const std::shared_ptr<Reading>& reading);
  Result<ReadDataset> keep(const std::string& name, ReadDataset read);
  void answer(const Request& request, Result<Loaded> view);
  bool let_idle_go();
  [[nodiscard]] bool fits(std::uint64_t bytes_max, std::size_t datasets_max) const;
  void make_room(std::uint64_t bytes_max, std::size_t datasets_max);
  [[nodiscard]] FileScope scope_of(const std::string& source) const;
  [[nodiscard]] proto::Loading progress_of(const Reading* reading) const;

  const StoreLimits limits_;
  const std::shared_ptr<Reading::Shared> readings_ = std::make_shared<Reading::Shared>();
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::map<std::string, Load> loads_under_way_;  ///< By stored_name.
  /// Of each source the latest description that is under way.
  std::map<std::string, std::weak_ptr<Reading>> descriptions_under_way_;
  std::size_t requests_waiting_ = 0;
  std::uint64_t requests_seen_ = 0;
  Workers loads_;  ///< With the next, the last members: their threads use those above.
  Workers descriptions_;
};

}  // namespace poprun::hostio
