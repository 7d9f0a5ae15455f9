#include "hostio/streams/dataset_store.h"

#include <future>

#include <fmt/format.h>

namespace poprun::hostio {

DatasetStore::DatasetStore() : thread_([this] { run(); }) {}

DatasetStore::~DatasetStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void DatasetStore::load_then(const std::string& source, Done done) {
  if (const Dataset* loaded = find(source)) {
    done(loaded);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    requests_.emplace_back(source, std::move(done));
  }
  changed_.notify_all();
}

Result<const Dataset*> DatasetStore::load(const std::string& source) {
  std::promise<Result<const Dataset*>> answer;
  load_then(source, [&](const Result<const Dataset*>& loaded) { answer.set_value(loaded); });
  return answer.get_future().get();
}

void DatasetStore::run() {
  while (true) {
    std::pair<std::string, Done> request;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !requests_.empty(); });
      if (stopping_) {
        return;
      }
      request = std::move(requests_.front());
      requests_.pop_front();
    }
    request.second(load_new(request.first));
  }
}

const Dataset* DatasetStore::find(const std::string& source) {
  const std::lock_guard lock(mutex_);
  const auto found = datasets_.find(source);
  return found == datasets_.end() ? nullptr : found->second.get();
}

Result<const Dataset*> DatasetStore::load_new(const std::string& source) {
  if (const Dataset* loaded = find(source)) {
    return loaded;
  }
  // Only this thread adds datasets, so the number read here is still true below.
  if (datasets_.size() >= kDatasetsMax) {
    return fail(ErrorCode::kUsage,
                fmt::format("the data server holds {} datasets, the most it may; start another one "
                            "for \"{}\"",
                            kDatasetsMax, source));
  }
  POPRUN_ASSIGN(std::unique_ptr<Dataset> dataset, load_dataset(source));
  const std::lock_guard lock(mutex_);
  return (datasets_[source] = std::move(dataset)).get();
}

}  // namespace poprun::hostio
