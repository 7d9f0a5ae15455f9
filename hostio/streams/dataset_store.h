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
#include "replica/base/error.h"

namespace poprun::hostio {

struct StoreLimits {
  FileScope files;                   ///< Files that a source may read.
  std::vector<std::string> sources;  ///< Sources that `files` does not restrict, with any parameters.
  /// Limit on the bytes of all stored data together. A single dataset is always admitted, even if it is larger.
  std::uint64_t bytes_max = std::numeric_limits<std::uint64_t>::max();
  std::size_t datasets_max = 64;         ///< Limit on stored datasets.
  std::size_t requests_max = 16'384;     ///< Limit on requests that wait for a load.
  std::size_t descriptions_max = 1024;   ///< Limit on descriptions that wait to begin.
  std::size_t loads_at_once = 4;         ///< Number of datasets loaded at a time.
  std::size_t descriptions_at_once = 4;  ///< Number of datasets described at a time.
};

/// The data that a server keeps from the files of datasets. It is identified by the contents of the files, not only by
/// their names: a job gets the data that was described to it, or an error. Files that were replaced are read again and
/// stored in addition to their earlier contents. The least recently requested datasets are dropped first, but never one
/// in use. A load that runs short of memory drops all idle datasets. A load that failed is retried at the next
/// request. Threads: any. Loads and descriptions run on the store's own threads, a few at a time, so that a large
/// dataset does not delay other datasets. Each load or description first checks that this host has enough memory.
class DatasetStore {
 public:
  /// Shared, because a stream may continue to read from a dataset that the store has dropped.
  using Loaded = std::shared_ptr<const Dataset>;
  /// Each of these is called once, or never if the store is destroyed first.
  using Done = std::function<void(Result<Loaded>)>;
  using Described = std::function<void(const Result<proto::Dataset>&)>;

  explicit DatasetStore(StoreLimits limits = {});
  DatasetStore(const DatasetStore&) = delete;
  DatasetStore& operator=(const DatasetStore&) = delete;

  /// Waits for the running tasks, and drops those that have not begun.
  ~DatasetStore();

  /// Passes the current description of the dataset (describe_dataset) to `done`, later and on a description thread.
  /// Never blocks. Errors: those of describe_dataset; kData if the description is larger than a message; kHostResources
  /// if `descriptions_max` are already waiting, which is reported immediately and on this thread.
  void describe_then(const std::string& source, bool with_fingerprint, Described done);

  /// Passes the dataset that was described with this fingerprint to `done`: immediately and on this thread if it is
  /// stored, and otherwise later and on a load thread. Never blocks. If the fingerprint is empty, it passes the files'
  /// current contents. Errors: those of load_dataset; kData if the contents of the files are not those that were
  /// described; kHostResources if `requests_max` are already waiting, or the datasets in use leave no space.
  void load_then(const std::string& source, const std::string& fingerprint, Done done);

  /// Loads the dataset for a client that will soon request it, unless many other requests are waiting.
  void load_soon(const std::string& source, const std::string& fingerprint);

  /// Return the progress of describing or loading a source, for a client that is waiting for it.
  proto::Loading describing(const std::string& source);
  proto::Loading loading(const std::string& source);

 private:
  /// A stored dataset, whose name is its stored_name.
  struct Entry {
    std::string name;
    ReadDataset read;
    std::uint64_t used = 0;  ///< Time of the last request for it, counted in requests.
  };

  struct Request {
    std::string source;
    std::string fingerprint;
    Done done;
    bool came_late = false;  ///< Arrived after the load began, so the load may have read older files.
  };

  /// A load that is running or waiting to begin, and all requests that wait for it.
  struct Load {
    std::shared_ptr<Reading> reading;
    std::vector<Request> requests;
  };

  class Workers;

  [[nodiscard]] Result<proto::Dataset> describe_now(const std::string& source, bool with_fingerprint,
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
  std::map<std::string, Load> loads_under_way_;  ///< Keyed by stored_name.
  /// The latest unfinished description of each source.
  std::map<std::string, std::weak_ptr<Reading>> descriptions_under_way_;
  std::size_t requests_waiting_ = 0;
  std::uint64_t requests_seen_ = 0;
  /// `loads_` and the member after it must be the last members: their threads use the members above.
  const std::unique_ptr<Workers> loads_;
  const std::unique_ptr<Workers> descriptions_;
};

}  // namespace poprun::hostio
