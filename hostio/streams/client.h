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

/// The replica's end of the host streams in proto/host_streams.proto.
namespace poprun::hostio {

struct HostStreamOptions {
  std::string address;                    ///< host:port of the data server.
  std::string token;                      ///< The job's token; empty if the server needs none.
  std::optional<TlsIdentity> identity{};  ///< If unset, the stream is in plain text.
  proto::Selection selection;             ///< The batches to fetch.
  std::uint64_t first_sequence = 0;       ///< The first batch.
  std::uint32_t prefetch_batches = 4;     ///< > 0. Limit on the batches in flight and stored here.
  /// The stream gives up after this time without a batch and without progress in reading the dataset.
  std::chrono::milliseconds timeout{60'000};
  std::string log_source;  ///< Tag of its log lines (replica/base/log.h).
  /// Called with true when next() begins to wait for a batch, and with false when the wait ends.
  std::function<void(bool waits)> on_wait = [](bool) {};
  /// Called with the percentage read whenever the server has made progress with the dataset.
  std::function<void(unsigned percent)> on_loading = [](unsigned) {};
  /// Polled ten times per second while next() waits. If it returns false, the wait ends with kInfrastructure.
  std::function<bool()> is_needed = [] { return true; };
};

/// Opens a stream that starts to prefetch immediately, on its own thread. It retries a lost server at intervals that
/// grow from 50 ms to 1 s; no batch is lost or repeated, because batches are numbered. One log line reports that the
/// server is lost, and another that it is back. A server that accepts connections but never answers counts as lost
/// after a quarter of the timeout. A server that is reading the dataset reports this, and counts as alive while it
/// makes progress. Destruction takes milliseconds, whatever the server does.
///
/// Errors of next()
///   kUnreachable  no server answered or made progress with the dataset for the whole timeout;
///                 the message names address, time and remedy.
///   kData         the dataset is missing, damaged or does not have the selection's fingerprint;
///                 the message is the server's.
///   kUsage        the selection or the token is wrong, or a different service answers at the address.
///   kBug          next() was called after the last batch of an evaluation, or the server miscounts.
std::unique_ptr<HostStream> open_host_stream(const HostStreamOptions& options);

}  // namespace poprun::hostio
