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

/// Asks a data server what a dataset holds, without making the loop wait.
class DatasetQuery {
 public:
  struct Question {
    std::string address;                  ///< host:port.
    std::string token;                    ///< Empty: none is sent.
    std::optional<TlsIdentity> identity;  ///< Without one: in plain text.
    std::string source;                   ///< data.source of train.cfg.
    bool only_describe = false;           ///< Nobody will read the data: see DescribeRequest.
    /// > 0. Keeps trying for so long without an answer, or news of a dataset that is being read.
    double timeout_seconds = 0;
  };
  using Answer = std::function<void(Result<proto::Dataset>)>;
  /// How far the server is, where it reads the dataset.
  using News = std::function<void(const proto::Loading&)>;

  /// `answer` comes once, `news` any number of times before; both on the loop's thread.
  ///
  /// Errors
  ///   kUnreachable  no server answered or made progress with the dataset; the address, also a
  ///                 fact, and for how long it was tried.
  ///   kData         the dataset is missing or damaged; the server's message.
  ///   kUsage        the source can never work; the server's message.
  DatasetQuery(asio::io_context& loop, const Question& question, News news, Answer answer);

  DatasetQuery(const DatasetQuery&) = delete;
  DatasetQuery& operator=(const DatasetQuery&) = delete;
  /// Cancels the question if it is still open; then `answer` does not come.
  ~DatasetQuery();

 private:
  class Call;
  std::shared_ptr<Call> call_;
};

}  // namespace poprun::launcher
