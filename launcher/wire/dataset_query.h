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
    std::string token;                    ///< If empty, no token is sent.
    std::optional<TlsIdentity> identity;  ///< Without it, the connection is plain text.
    std::string source;                   ///< data.source of train.cfg.
    bool only_describe = false;           ///< Whether only the description is needed (see DescribeRequest).
    /// The query gives up after this time without an answer or any progress in reading the dataset. Must be positive.
    double timeout_seconds = 0;
  };
  using Answer = std::function<void(Result<proto::Dataset>)>;
  /// Receives the progress of a server that is reading the dataset.
  using News = std::function<void(const proto::Loading&)>;

  /// `news` is called any number of times, and then `answer` is called once. Both are called on the loop's thread.
  ///
  /// Errors
  ///   kUnreachable  no server answered or made progress; the message gives the address (also in `facts`) and the wait.
  ///   kData         the dataset is missing or damaged; the message is the server's.
  ///   kUsage        the source can never work (the message is the server's), the token is wrong, or the service at the
  ///                 address is not a data server.
  DatasetQuery(asio::io_context& loop, const Question& question, News news, Answer answer);

  DatasetQuery(const DatasetQuery&) = delete;
  DatasetQuery& operator=(const DatasetQuery&) = delete;
  /// Cancels the query if it is still open. In that case, `answer` is not called.
  ~DatasetQuery();

 private:
  class Call;
  std::shared_ptr<Call> call_;
};

}  // namespace poprun::launcher
