#include "hostio/streams/dataset_store.h"

#include <algorithm>
#include <future>
#include <new>

#include <fmt/format.h>

#include "replica/base/text.h"

namespace poprun::hostio {
namespace {

/// Below gRPC's 4 MiB of a message that the client asks for.
constexpr std::size_t kDescriptionBytesMax = std::size_t{1} << 20;

/// What `find` says, or that its memory could not be had.
template <typename Find>
auto within_memory(const std::string& source, Find find) -> decltype(find()) {
  try {
    return find();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kData,
                fmt::format("{}: this host has too little memory for it; use a smaller dataset or "
                            "a host with more memory",
                            source),
                {.shortage = Shortage{}});
  }
}

/// A source without its parameters.
std::string text_of(const std::string& source) {
  const Result<Source> parsed = Source::parse(source);
  return parsed ? parsed->text : source;
}

}  // namespace

DatasetStore::DatasetStore(StoreLimits limits)
    : limits_(std::move(limits)),
      loads_(limits_.requests_max),
      descriptions_(limits_.descriptions_max) {}

FileScope DatasetStore::scope_of(const std::string& source) const {
  const std::string text = text_of(source);
  const bool named = std::ranges::any_of(
      limits_.sources, [&](const std::string& allowed) { return text_of(allowed) == text; });
  return named ? FileScope{} : limits_.files;
}

void DatasetStore::describe_then(const std::string& source, Described done) {
  if (!descriptions_.add([this, source, done] { done(describe_now(source)); })) {
    done(fail(ErrorCode::kHostResources,
              fmt::format("{} requests for descriptions of datasets wait already",
                          limits_.descriptions_max)));
  }
}

Result<proto::Dataset> DatasetStore::describe(const std::string& source) {
  std::promise<Result<proto::Dataset>> answer;
  describe_then(source, [&](const Result<proto::Dataset>& found) { answer.set_value(found); });
  return answer.get_future().get();
}

Result<proto::Dataset> DatasetStore::describe_now(const std::string& source) const {
  POPRUN_ASSIGN(proto::Dataset description,
                within_memory(source, [&] { return describe_dataset(source, scope_of(source)); }));
  if (description.ByteSizeLong() > kDescriptionBytesMax) {
    return fail(ErrorCode::kData,
                fmt::format("{}: the names and shapes of its {} arrays take {} B; the limit is {} "
                            "B: use fewer arrays or shorter names",
                            source, grouped(description.tensors_size()),
                            grouped(description.ByteSizeLong()), grouped(kDescriptionBytesMax)));
  }
  return description;
}

void DatasetStore::load_then(const std::string& source, Done done) {
  if (const Loaded loaded = find(source)) {
    done(loaded);
    return;
  }
  if (!loads_.add([this, source, done] { done(load_new(source)); })) {
    done(fail(ErrorCode::kHostResources,
              fmt::format("{} requests for datasets wait already", limits_.requests_max)));
  }
}

void DatasetStore::load_soon(const std::string& source) {
  constexpr std::size_t kFew = 16;
  if (loads_.waiting() < kFew) {
    load_then(source, [](const Result<Loaded>&) {});
  }
}

Result<DatasetStore::Loaded> DatasetStore::load(const std::string& source) {
  std::promise<Result<Loaded>> answer;
  load_then(source, [&](const Result<Loaded>& loaded) { answer.set_value(loaded); });
  return answer.get_future().get();
}

DatasetStore::Loaded DatasetStore::find(const std::string& source) {
  const std::lock_guard lock(mutex_);
  const auto found = datasets_.find(source);
  if (found == datasets_.end()) {
    return nullptr;
  }
  found->second.used = ++requests_seen_;
  return found->second.dataset;
}

Result<DatasetStore::Loaded> DatasetStore::load_new(const std::string& source) {
  if (Loaded loaded = find(source)) {
    return loaded;
  }
  const auto read = [&] {
    return within_memory(
        source, [&]() -> Result<Loaded> { return load_dataset(source, scope_of(source)); });
  };
  Result<Loaded> dataset = read();
  if (!dataset && dataset.error().facts.shortage && let_idle_go()) {
    dataset = read();
  }
  if (!dataset) {
    return dataset;
  }
  const std::lock_guard lock(mutex_);
  datasets_[source] = {*dataset, ++requests_seen_};
  make_room(limits_.bytes_max, limits_.datasets_max);
  if (datasets_.size() > 1 && !fits(limits_.bytes_max, limits_.datasets_max)) {
    datasets_.erase(source);
    return fail(ErrorCode::kHostResources,
                fmt::format("{}: no room for it beside the {} that are being read from; this "
                            "server keeps at most {} of datasets",
                            source, counted(datasets_.size(), "dataset"),
                            mebibytes_text(limits_.bytes_max)));
  }
  return dataset;
}

/// Under the lock.
bool DatasetStore::fits(std::uint64_t bytes_max, std::size_t datasets_max) const {
  std::uint64_t bytes = 0;
  for (const auto& [source, entry] : datasets_) {
    bytes += entry.dataset->bytes();
  }
  return bytes <= bytes_max && datasets_.size() <= datasets_max;
}

/// Whether there were any.
bool DatasetStore::let_idle_go() {
  const std::lock_guard lock(mutex_);
  const std::size_t had = datasets_.size();
  make_room(0, 0);
  return datasets_.size() < had;
}

/// Under the lock. What somebody else holds stays.
void DatasetStore::make_room(std::uint64_t bytes_max, std::size_t datasets_max) {
  while (!fits(bytes_max, datasets_max)) {
    auto oldest = datasets_.end();
    for (auto at = datasets_.begin(); at != datasets_.end(); ++at) {
      const bool idle = at->second.dataset.use_count() == 1;
      if (idle && (oldest == datasets_.end() || at->second.used < oldest->second.used)) {
        oldest = at;
      }
    }
    if (oldest == datasets_.end()) {
      return;
    }
    datasets_.erase(oldest);
  }
}

}  // namespace poprun::hostio
