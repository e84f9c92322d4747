// FetchResult without copies: v1::FetchResultResponse, byte for byte, whose chunk is slices of
// memory that somebody else owns. A generated message would copy it twice on its way out, and twice
// in.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/method_handler.h"
#include "grpcpp/support/slice.h"
#include "grpcpp/support/status.h"
#include "grpcpp/support/sync_stream.h"
#include "onepiece/v1/generation.pb.h"

namespace onepiece::rpc {

/// One message of a fetch. A value type; copies share the bytes.
struct ResultPart {
  std::optional<v1::ResultArtifact> artifact;
  std::vector<grpc::Slice> chunk;  ///< Its pieces, in order.

  [[nodiscard]] std::size_t chunk_bytes() const;
};

/// Bytes that `owner` keeps; it goes when the transport has sent them, or has given up on that.
grpc::Slice BorrowedSlice(std::shared_ptr<const void> owner, std::span<const std::byte> bytes);
/// The bytes of a piece, for as long as it lives.
inline std::string_view ViewOf(const grpc::Slice& piece) {
  return {reinterpret_cast<const char*>(piece.begin()), piece.size()};
}

/// What a handler reads its one request from, and writes parts to.
using ResultStream = grpc::ServerSplitStreamer<v1::FetchResultRequest, ResultPart>;
/// In place of a generated FetchResult (grpc::Service::MarkMethodStreamed takes it over).
grpc::internal::MethodHandler* MakeFetchHandler(
    std::function<grpc::Status(grpc::ServerContext&, const v1::FetchResultRequest&, ResultStream&)>
        handler);
/// The number of a method in its service: "onepiece.v1.DatabaseService.FetchResult".
/// REQUIRES: there is one.
int MethodIndex(const std::string& full_name);

/// Calls FetchResult of `service` ("onepiece.v1.DatabaseService"). Does not block.
std::unique_ptr<grpc::ClientReader<ResultPart>> FetchResult(grpc::ChannelInterface& channel,
                                                            const std::string& service,
                                                            grpc::ClientContext& context,
                                                            const v1::FetchResultRequest& request);

}  // namespace onepiece::rpc

template <>
class grpc::SerializationTraits<onepiece::rpc::ResultPart, void> {
 public:
  static grpc::Status Serialize(const onepiece::rpc::ResultPart& part, grpc::ByteBuffer* buffer,
                                bool* own_buffer);
  /// INTERNAL for what is not a v1::FetchResultResponse, as for generated messages.
  static grpc::Status Deserialize(grpc::ByteBuffer* buffer, onepiece::rpc::ResultPart* part);
};
