// The health of a server, as load balancers ask for it.
#pragma once

#include <optional>
#include <string>

#include "cluster/rpc/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"

namespace onepiece::testing {

inline constexpr int kServing = 1, kNotServing = 2;

/// What the standard health service (grpc.health.v1) says about `service`, or the whole server for
/// "". The request's field 1 is the name, and the answer's field 1 is the state. nullopt: the
/// server does not answer, or has no answer for this service.
inline std::optional<int> AskHealth(const std::string& address, const std::string& service = "") {
  grpc::GenericStub stub(rpc::MakeChannel(address));
  grpc::ClientContext context;
  rpc::SetTimeout(context, std::chrono::seconds(10));
  grpc::CompletionQueue queue;
  grpc::ByteBuffer answer;
  grpc::Status status;
  std::string bytes_of_name;
  if (!service.empty()) {
    bytes_of_name = {'\x0a', static_cast<char>(service.size())};  // It has less than 128 bytes.
    bytes_of_name += service;
  }
  const grpc::Slice name(bytes_of_name);
  const grpc::ByteBuffer request(&name, 1);
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  if (!queue.Next(&tag, &ok) || !status.ok()) return std::nullopt;
  grpc::Slice bytes;
  if (!answer.DumpToSingleSlice(&bytes).ok() || bytes.size() != 2) return std::nullopt;
  return bytes.begin()[1];
}

}  // namespace onepiece::testing
