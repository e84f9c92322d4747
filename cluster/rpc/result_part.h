// FetchResult without copies. A ResultPart is a v1::FetchResultResponse, byte for byte, but its
// chunk is made of slices of memory that somebody else owns. A generated message would copy the
// chunk twice on its way out and twice on its way in.
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

/// One message of a fetch. It is a value type, and copies share the bytes.
struct ResultPart {
  std::optional<v1::ResultArtifact> artifact;
  std::vector<grpc::Slice> chunk;  ///< The pieces of the chunk, in order.

  [[nodiscard]] std::size_t chunk_bytes() const;
};

/// Makes a slice of `bytes` without a copy.
///
/// Ownership: the slice shares `owner`, which keeps the bytes, until the transport has sent them or
/// has given up.
grpc::Slice BorrowedSlice(std::shared_ptr<const void> owner, std::span<const std::byte> bytes);
/// Returns the bytes of a piece. They are valid as long as the piece.
inline std::string_view ViewOf(const grpc::Slice& piece) {
  return {reinterpret_cast<const char*>(piece.begin()), piece.size()};
}

/// The stream from which a handler reads its one request and to which it writes parts.
using ResultStream = grpc::ServerSplitStreamer<v1::FetchResultRequest, ResultPart>;
/// Makes a handler that replaces a generated FetchResult.
///
/// Ownership: the caller owns it, and grpc::Service::MarkMethodStreamed takes it over.
grpc::internal::MethodHandler* MakeFetchHandler(
    std::function<grpc::Status(grpc::ServerContext&, const v1::FetchResultRequest&, ResultStream&)>
        handler);
/// Returns the index of a method in its service, by its full name:
/// "onepiece.v1.DatabaseService.FetchResult".
/// REQUIRES: the method exists.
int MethodIndex(const std::string& full_name);

/// Calls FetchResult of `service` ("onepiece.v1.DatabaseService").
///
/// Blocking: never.
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
  /// Errors: INTERNAL when the bytes are not a v1::FetchResultResponse, as for generated messages.
  static grpc::Status Deserialize(grpc::ByteBuffer* buffer, onepiece::rpc::ResultPart* part);
};
