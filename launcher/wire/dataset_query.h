#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <asio/io_context.hpp>

#include "proto/host_streams.pb.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"

namespace poprun::launcher {

/// Asks a data server what a dataset contains, without blocking the loop.
class DatasetQuery {
 public:
  struct Question {
    std::string address;                  ///< host:port.
    std::string token;                    ///< Empty: no token is sent.
    std::optional<TlsIdentity> identity;  ///< None: plain text.
    std::string source;                   ///< data.source of train.cfg.
    bool only_describe = false;           ///< Nobody will read the data: see DescribeRequest.
    /// Must be positive. The query gives up after this time without an answer or progress in reading the dataset.
    double timeout_seconds = 0;
  };
  using Answer = std::function<void(Result<proto::Dataset>)>;
  /// Progress of a server that is reading the dataset.
  using News = std::function<void(const proto::Loading&)>;

  /// `news` is called any number of times, then `answer` once; both are called on the loop's thread.
  ///
  /// Errors
  ///   kUnreachable  no server answered or made progress; gives the address (also as a fact) and the time spent trying.
  ///   kData         the dataset is missing or damaged; the server's message.
  ///   kUsage        the source can never work; the server's message.
  DatasetQuery(asio::io_context& loop, const Question& question, News news, Answer answer);

  DatasetQuery(const DatasetQuery&) = delete;
  DatasetQuery& operator=(const DatasetQuery&) = delete;
  /// Cancels the query if it is still open; then `answer` is not called.
  ~DatasetQuery();

 private:
  class Call;
  std::shared_ptr<Call> call_;
};

}  // namespace poprun::launcher
