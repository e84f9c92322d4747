// What TLS costs in gRPC alone: a server that does nothing, without our door, limits and owners.
// What a cluster pays more than this is ours.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/server.h"
#include "onepiece/v1/generation.grpc.pb.h"

namespace onepiece::bench {

/// A server in this process and a channel to it.
///
/// Threading: one thread at a time.
class Bare {
 public:
  /// `identity`: the folder of a node whose identity the server shows; empty for plaintext. The
  /// channel shows what the process shows now (rpc::UseCredentials).
  ///
  /// Errors: those of rpc::MakeServerCredentials(), UNAVAILABLE.
  static absl::StatusOr<std::unique_ptr<Bare>> Start(const std::string& identity);
  ~Bare();

  /// Makes one unary call with an empty answer.
  absl::Status Call();
  /// Takes `bytes` in messages of 1 MiB.
  absl::Status Fetch(std::int64_t bytes);

 private:
  class Service;
  Bare();

  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

}  // namespace onepiece::bench
