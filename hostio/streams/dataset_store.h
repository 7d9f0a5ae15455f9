#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "hostio/datasets/dataset.h"
#include "replica/base/error.h"

namespace poprun::hostio {

/// The datasets of one server, each loaded once, at its first use, and kept until the store dies.
/// A load that failed is tried again at the next request.
///
/// Threads: any. Loads run one after another on the store's own thread, so that nobody who asks
/// for a loaded dataset waits for one that is not.
class DatasetStore {
 public:
  /// Called once, with a dataset that lives as long as the store; never called when the store dies
  /// first.
  using Done = std::function<void(const Result<const Dataset*>&)>;

  static constexpr std::size_t kDatasetsMax = 16;

  DatasetStore();
  DatasetStore(const DatasetStore&) = delete;
  DatasetStore& operator=(const DatasetStore&) = delete;

  /// Waits for a load that is running; forgets those that have not begun.
  ~DatasetStore();

  /// Hands the dataset to `done`: at once and on this thread where it is loaded, else later and on
  /// the store's thread. Never blocks. Whoever asks bounds the requests in the queue.
  ///
  /// Errors: those of load_dataset, and kUsage when the store holds kDatasetsMax others.
  void load_then(const std::string& source, Done done);

  /// The same for a caller that has time.
  Result<const Dataset*> load(const std::string& source);

 private:
  void run();
  const Dataset* find(const std::string& source);
  Result<const Dataset*> load_new(const std::string& source);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<Dataset>> datasets_;
  std::deque<std::pair<std::string, Done>> requests_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace poprun::hostio
