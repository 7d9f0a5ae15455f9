#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <asio/io_context.hpp>

#include "proto/host_streams.pb.h"
#include "replica/base/error.h"
#include "replica/tls/identity.h"

namespace poprun::launcher {

/// Asks a data server what a dataset holds, without making the loop wait.
class DatasetQuery {
 public:
  struct Question {
    std::string address;                  ///< host:port.
    std::string token;                    ///< Empty: none is sent.
    std::optional<TlsIdentity> identity;  ///< Without one: in plain text.
    std::string source;                   ///< data.source of train.cfg.
    double timeout_seconds = 0;           ///< > 0. Keeps trying to connect for that long.
  };
  using Answer = std::function<void(Result<proto::Dataset>)>;

  /// `answer` comes once, on the loop's thread.
  ///
  /// Errors
  ///   kUnreachable  no server answered; the address, also a fact, and for how long it was tried.
  ///   kData         the dataset is missing or damaged; the server's message.
  ///   kUsage        the source can never work; the server's message.
  DatasetQuery(asio::io_context& loop, const Question& question, Answer answer);

  DatasetQuery(const DatasetQuery&) = delete;
  DatasetQuery& operator=(const DatasetQuery&) = delete;
  /// Cancels the question if it is still open; then `answer` does not come.
  ~DatasetQuery();

 private:
  struct Call;
  std::shared_ptr<Call> call_;
};

}  // namespace poprun::launcher
