// FetchResult without copies. A ResultPart is a v1::FetchResultResponse, byte for byte, but its
// chunk is made of slices of memory that somebody else owns. A generated message would copy the
// chunk twice on its way out and twice on its way in.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
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

/// Returns the message's bytes. The buffer shares the pieces of the chunk.
grpc::ByteBuffer EncodePart(const ResultPart& part);
/// Returns nullopt when the bytes are not a v1::FetchResultResponse, exactly when a generated
/// message could not be parsed from them. The part's chunk shares the buffer's memory.
std::optional<ResultPart> DecodePart(grpc::ByteBuffer bytes);

/// The request of a FetchResult that is served as bytes (WithRawCallbackMethod_FetchResult).
///
/// Errors: INVALID_ARGUMENT (BAD_REQUEST).
absl::StatusOr<v1::FetchResultRequest> DecodeFetch(const grpc::ByteBuffer& bytes);

}  // namespace onepiece::rpc
