#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "proto/host_streams.pb.h"
#include "replica/base/error.h"
#include "replica/base/grpc/identity.h"
#include "replica/ports/host_stream.h"

/// The replica's end of proto/host_streams.proto.
namespace poprun::hostio {

struct HostStreamOptions {
  std::string address;                    ///< host:port of the data server.
  std::string token;                      ///< The job's; empty where the server needs none.
  std::optional<TlsIdentity> identity{};  ///< Without one: in plain text.
  proto::Selection selection;             ///< Which batches.
  std::uint64_t first_sequence = 0;       ///< The first of them.
  std::uint32_t prefetch_batches = 4;     ///< > 0. Bounds batches under way plus batches kept here.
  /// How long to try without a batch, or news of a dataset that is being read, before giving up.
  std::chrono::milliseconds timeout{60'000};
  std::string log_source;  ///< Tag of its log lines (replica/base/log.h).
  /// Called with true where next() begins to wait for a batch, with false where that ends.
  std::function<void(bool waits)> on_wait = [](bool) {};
  /// Called with the percentage read whenever the server has made progress with the dataset.
  std::function<void(unsigned percent)> on_loading = [](unsigned) {};
  /// Asked ten times a second while next() waits. False ends that wait with kInfrastructure.
  std::function<bool()> is_needed = [] { return true; };
};

/// A stream that fetches ahead from now on, on a thread of its own. A lost server is sought again
/// every 50 ms at first, every second at last; no batch is lost or repeated, because batches go by
/// number. One log line says when the server is lost, one when it is back.
///
/// A server that accepts and never answers counts as lost after a quarter of the timeout. One that
/// reads the dataset says so, and counts as alive as long as it makes progress.
/// Destruction takes milliseconds, whatever the server does.
///
/// Errors, from next()
///   kUnreachable  no server answered or made progress with the dataset for the whole timeout;
///                 says address, time, remedy.
///   kData         the dataset is missing, damaged or not the one of the selection's fingerprint;
///                 the server's message.
///   kUsage        the selection or the token is wrong, or another service answers.
///   kBug          next() after the last batch of an evaluation, or a server that miscounts.
std::unique_ptr<HostStream> open_host_stream(const HostStreamOptions& options);

}  // namespace poprun::hostio
