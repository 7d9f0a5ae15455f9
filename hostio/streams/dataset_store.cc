#include "hostio/streams/dataset_store.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

/// Largest size of a description, below the client's limit of 4 MiB per message.
constexpr std::size_t kDescriptionBytesMax = std::size_t{1} << 20;

/// Calls `find`, and returns an error if `find` runs out of memory.
template <typename Find>
auto within_memory(const std::string& source, Find find) -> decltype(find()) {
  try {
    return find();
  } catch (const std::bad_alloc&) {
    return fail(
        ErrorCode::kData,
        fmt::format("{}: this host has too little memory for the dataset; use a smaller one or a host with more memory",
                    source),
        {.shortage = Shortage{}});
  }
}

/// Returns a source without its parameters.
std::string text_of(const std::string& source) {
  const Result<Source> parsed = Source::parse(source);
  return parsed ? parsed->text : source;
}

}  // namespace

/// A pool of threads that start tasks in order of arrival. Threads: any, for all functions.
class DatasetStore::Workers {
 public:
  using Task = std::function<void()>;

  /// Starts `threads` threads. At most `waiting_max` tasks can wait, in addition to those that are running.
  Workers(std::size_t threads, std::size_t waiting_max) : waiting_max_(waiting_max) {
    while (threads_.size() < threads) {
      threads_.emplace_back([this] { run(); });
    }
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Waits for the running tasks, and drops those that have not begun.
  ~Workers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  /// Adds a task. Returns false and does nothing if `waiting_max` tasks are already waiting.
  [[nodiscard]] bool add(Task task) {
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.size() >= waiting_max_) {
        return false;
      }
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return true;
  }

  [[nodiscard]] std::size_t waiting() {
    const std::lock_guard lock(mutex_);
    return tasks_.size();
  }

 private:
  void run() {
    while (true) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
        if (stopping_) {
          return;
        }
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }

  const std::size_t waiting_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;  ///< Must be the last member: the threads use the members above.
};

DatasetStore::DatasetStore(StoreLimits limits)
    : limits_(std::move(limits)),
      loads_(std::make_unique<Workers>(limits_.loads_at_once, limits_.requests_max)),
      descriptions_(std::make_unique<Workers>(limits_.descriptions_at_once, limits_.descriptions_max)) {}

DatasetStore::~DatasetStore() = default;

FileScope DatasetStore::scope_of(const std::string& source) const {
  const std::string text = text_of(source);
  const bool named =
      std::ranges::any_of(limits_.sources, [&](const std::string& allowed) { return text_of(allowed) == text; });
  return named ? FileScope{} : limits_.files;
}

void DatasetStore::describe_then(const std::string& source, bool with_fingerprint, Described done) {
  const auto reading = std::make_shared<Reading>(readings_);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(descriptions_under_way_, [](const auto& entry) { return entry.second.expired(); });
    descriptions_under_way_[source] = reading;
  }
  if (!descriptions_->add(
          [this, source, with_fingerprint, reading, done] { done(describe_now(source, with_fingerprint, reading)); })) {
    done(fail(ErrorCode::kHostResources,
              fmt::format("{} requests for dataset descriptions are already waiting", limits_.descriptions_max)));
  }
}

Result<proto::Dataset> DatasetStore::describe_now(const std::string& source, bool with_fingerprint,
                                                  const std::shared_ptr<Reading>& reading) const {
  reading->begin();
  POPRUN_ASSIGN(proto::Dataset description, within_memory(source, [&] {
                  return describe_dataset(source, scope_of(source).during(reading), with_fingerprint);
                }));
  if (description.ByteSizeLong() > kDescriptionBytesMax) {
    return fail(ErrorCode::kData, fmt::format("{}: the names and shapes of the {} arrays take {} B, but the limit is "
                                              "{} B; use fewer arrays or shorter names",
                                              source, grouped(description.tensors_size()),
                                              grouped(description.ByteSizeLong()), grouped(kDescriptionBytesMax)));
  }
  return description;
}

void DatasetStore::load_then(const std::string& source, const std::string& fingerprint, Done done) {
  if (Result<Loaded> found = find(source, fingerprint); !found || *found != nullptr) {
    done(std::move(found));
    return;
  }
  const std::string name = stored_name(source);
  bool is_refused = false;
  {
    const std::lock_guard lock(mutex_);
    is_refused = requests_waiting_ >= limits_.requests_max;
    if (!is_refused) {
      const auto [load, is_new] = loads_under_way_.try_emplace(name);
      if (is_new) {
        load->second.reading = std::make_shared<Reading>(readings_);
        POPRUN_CHECK(loads_->add([this, name] { load_now(name); }));
      }
      ++requests_waiting_;
      load->second.requests.push_back({source, fingerprint, std::move(done), load->second.reading->has_begun()});
    }
  }
  if (is_refused) {
    done(fail(ErrorCode::kHostResources,
              fmt::format("{} requests for datasets are already waiting", limits_.requests_max)));
  }
}

void DatasetStore::load_soon(const std::string& source, const std::string& fingerprint) {
  constexpr std::size_t kFew = 16;
  if (loads_->waiting() < kFew) {
    load_then(source, fingerprint, [](const Result<Loaded>&) {});
  }
}

proto::Loading DatasetStore::progress_of(const Reading* reading) const {
  proto::Loading loading;
  const bool has_begun = reading != nullptr && reading->has_begun();
  loading.set_waits(!has_begun);
  loading.set_work(has_begun ? reading->work() : readings_->work.load());
  loading.set_percent(has_begun ? reading->percent() : 0);
  return loading;
}

proto::Loading DatasetStore::describing(const std::string& source) {
  const std::lock_guard lock(mutex_);
  const auto found = descriptions_under_way_.find(source);
  const auto reading = found == descriptions_under_way_.end() ? nullptr : found->second.lock();
  return progress_of(reading.get());
}

proto::Loading DatasetStore::loading(const std::string& source) {
  const std::string name = stored_name(source);
  const std::lock_guard lock(mutex_);
  const auto found = loads_under_way_.find(name);
  return progress_of(found == loads_under_way_.end() ? nullptr : found->second.reading.get());
}

/// Returns the dataset if it is stored, and otherwise null. Errors: those of view_dataset.
Result<DatasetStore::Loaded> DatasetStore::find(const std::string& source, const std::string& fingerprint) {
  const std::string name = stored_name(source);
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.name != name || fingerprint.empty()) {
      continue;
    }
    POPRUN_ASSIGN(Loaded view, view_dataset(entry.read, source));
    if (view->description().fingerprint() == fingerprint) {
      entry.used = ++requests_seen_;
      return view;
    }
  }
  return Loaded();
}

void DatasetStore::load_now(const std::string& name) {
  std::string source;
  std::shared_ptr<Reading> reading;
  {
    const std::lock_guard lock(mutex_);
    const Load& load = loads_under_way_.at(name);
    source = load.requests.front().source;
    reading = load.reading;
    reading->begin();
  }
  std::optional<Result<ReadDataset>> read =
      read_now(source, reading).and_then([&](ReadDataset fresh) { return keep(name, std::move(fresh)); });
  std::vector<Request> requests;
  {
    const std::lock_guard lock(mutex_);
    requests = std::move(loads_under_way_.extract(name).mapped().requests);
    requests_waiting_ -= requests.size();
  }
  std::vector<Result<Loaded>> views;
  for (const Request& request : requests) {
    views.push_back(read->and_then(
        [&](const ReadDataset& fresh) -> Result<Loaded> { return view_dataset(fresh, request.source); }));
  }
  read.reset();  // After the answer, only the requesters hold the dataset.
  for (std::size_t i = 0; i < requests.size(); ++i) {
    answer(requests[i], std::move(views[i]));
  }
}

void DatasetStore::answer(const Request& request, Result<Loaded> view) {
  const bool is_asked_for =
      !view || request.fingerprint.empty() || (*view)->description().fingerprint() == request.fingerprint;
  if (is_asked_for && (view || !request.came_late)) {
    request.done(std::move(view));
  } else if (request.came_late) {
    load_then(request.source, request.fingerprint, request.done);
  } else {
    request.done(fail(
        ErrorCode::kData,
        fmt::format("{}: the files changed after the job began, so the data server no longer has the data that it "
                    "described to the job; restore the old files and continue from a checkpoint, or start a new job",
                    text_of(request.source))));
  }
}

/// Reads the files. If memory is too small and there are idle datasets, it drops them and tries again.
Result<ReadDataset> DatasetStore::read_now(const std::string& source, const std::shared_ptr<Reading>& reading) {
  const auto read = [&] {
    return within_memory(source, [&] { return read_dataset(source, scope_of(source).during(reading)); });
  };
  Result<ReadDataset> fresh = read();
  if (!fresh && fresh.error().facts.shortage && let_idle_go()) {
    fresh = read();
  }
  return fresh;
}

/// Stores the data that was read, if there is space. Errors: kHostResources if there is none.
Result<ReadDataset> DatasetStore::keep(const std::string& name, ReadDataset read) {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.name == name && entry.read.digest == read.digest) {
      entry.used = ++requests_seen_;
      return entry.read;
    }
  }
  entries_.push_back({name, read, ++requests_seen_});
  make_room(limits_.bytes_max, limits_.datasets_max);
  if (entries_.size() > 1 && !fits(limits_.bytes_max, limits_.datasets_max)) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.read.stored == read.stored; });
    return fail(ErrorCode::kHostResources,
                fmt::format("{}: there is no space for this dataset in addition to the {} in use; this server stores "
                            "at most {} of datasets",
                            text_of(name), counted(entries_.size(), "dataset"), mebibytes_text(limits_.bytes_max)));
  }
  return read;
}

/// Returns whether the stored datasets are within these limits. Requires: the lock is held.
bool DatasetStore::fits(std::uint64_t bytes_max, std::size_t datasets_max) const {
  std::uint64_t bytes = 0;
  for (const Entry& entry : entries_) {
    bytes += entry.read.stored->bytes();
  }
  return bytes <= bytes_max && entries_.size() <= datasets_max;
}

/// Drops all idle datasets. Returns whether there were any.
bool DatasetStore::let_idle_go() {
  const std::lock_guard lock(mutex_);
  const std::size_t had = entries_.size();
  make_room(0, 0);
  return entries_.size() < had;
}

/// Drops the oldest datasets that are not in use. Requires: the lock is held.
void DatasetStore::make_room(std::uint64_t bytes_max, std::size_t datasets_max) {
  while (!fits(bytes_max, datasets_max)) {
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      const bool idle = at->read.stored.use_count() == 1;
      if (idle && (oldest == entries_.end() || at->used < oldest->used)) {
        oldest = at;
      }
    }
    if (oldest == entries_.end()) {
      return;
    }
    entries_.erase(oldest);
  }
}

}  // namespace poprun::hostio
