#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "proto/host_streams.pb.h"

/// The server's side of the two calls of the data server's service, Describe and Pull.
namespace poprun::hostio {

class DatasetStore;

/// Resources of this host that all streams share. Thread-safe.
class Room {
 public:
  static constexpr std::uint32_t kStreamsMax = 8192;  ///< Two per replica of the largest job.

  explicit Room(std::uint64_t batch_bytes_max) : bytes_max_(batch_bytes_max) {}

  /// Admits one more stream, if there is space.
  bool enter() {
    const std::lock_guard lock(mutex_);
    return streams_ < kStreamsMax && ++streams_ > 0;
  }

  /// Reserves memory for a stream's batch, if there is space. A single batch is always admitted.
  bool take(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes_ > 0 && bytes > bytes_max_ - std::min(bytes_, bytes_max_)) {
      return false;
    }
    bytes_ += bytes;
    return true;
  }

  /// Ends a stream; `bytes` is the memory that it reserved.
  void leave(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    --streams_;
    bytes_ -= bytes;
  }

 private:
  const std::uint64_t bytes_max_;
  std::mutex mutex_;
  std::uint32_t streams_ = 0;
  std::uint64_t bytes_ = 0;
};

/// A call that waits for a dataset to be read.
class Waiting {
 public:
  Waiting() = default;
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  virtual ~Waiting() = default;

  /// Sends the client the progress of reading the dataset. Returns false if the call no longer waits.
  virtual bool send_news() = 0;
};

/// Makes waiting calls send their progress a few times per second, on its own thread. Threads: any.
class NewsThread {
 public:
  NewsThread() : thread_([this] { run(); }) {}
  NewsThread(const NewsThread&) = delete;
  NewsThread& operator=(const NewsThread&) = delete;
  ~NewsThread() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(std::weak_ptr<Waiting> call) {
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back(std::move(call));
    }
    changed_.notify_all();
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenNews{100};  ///< Interval between checks of the progress.

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
      if (changed_.wait_for(lock, kBetweenNews, [this] { return stopping_; })) {
        return;
      }
      std::vector<std::weak_ptr<Waiting>> calls = std::move(calls_);
      calls_.clear();
      lock.unlock();
      std::erase_if(calls, [](const std::weak_ptr<Waiting>& call) {
        const std::shared_ptr<Waiting> waiting = call.lock();
        return waiting == nullptr || !waiting->send_news();
      });
      lock.lock();
      calls_.insert(calls_.end(), calls.begin(), calls.end());
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::weak_ptr<Waiting>> calls_;
  bool stopping_ = false;
  std::thread thread_;  ///< Must be the last member: the thread uses the members above.
};

/// The longest name of a source, in bytes.
inline constexpr std::size_t kSourceBytesMax = std::size_t{8} * 1024;

/// Serves a description of `request`'s source, or refuses the call with `admission` if that is not OK.
grpc::ServerWriteReactor<proto::DescribeReply>* serve_describe(DatasetStore& datasets, NewsThread& news,
                                                               const grpc::Status& admission,
                                                               const proto::DescribeRequest& request);

/// Serves batches to one replica, or refuses the call with `admission` if that is not OK.
grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* serve_pull(DatasetStore& datasets, NewsThread& news,
                                                                        const std::shared_ptr<Room>& room,
                                                                        const grpc::Status& admission);

}  // namespace poprun::hostio
