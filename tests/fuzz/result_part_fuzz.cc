// Gives any bytes, in any pieces, to the decoder of ResultPart. It must take what the generated
// v1::FetchResultResponse takes, and find the same in it. It may take a tag of more than 32 bits,
// which the generated code refuses.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/check.h"
#include "cluster/rpc/result_part.h"
#include "google/protobuf/stubs/logging.h"

namespace onepiece::rpc {
namespace {

/// The first byte says how long the pieces are.
grpc::ByteBuffer InPieces(std::string_view bytes, std::size_t piece) {
  std::vector<grpc::Slice> slices;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, piece);
    slices.emplace_back(part.data(), part.size());
    bytes.remove_prefix(part.size());
  }
  return {slices.data(), slices.size()};
}

void Compare(const ResultPart& part, const v1::FetchResultResponse& message) {
  ONEPIECE_CHECK(part.artifact.has_value() == message.has_artifact());
  if (part.artifact.has_value())
    ONEPIECE_CHECK(part.artifact->SerializeAsString() == message.artifact().SerializeAsString());
  std::string chunk;
  for (const grpc::Slice& piece : part.chunk) chunk += ViewOf(piece);
  ONEPIECE_CHECK(chunk == message.chunk());
}

}  // namespace
}  // namespace onepiece::rpc

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::rpc;
  static const google::protobuf::LogSilencer quiet;  // It logs every text that is not UTF-8.
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::optional<ResultPart> part = DecodePart(InPieces(bytes, 1 + data[0]));
  onepiece::v1::FetchResultResponse message;
  const bool parsed = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  ONEPIECE_CHECK(part.has_value() || !parsed);
  if (!part.has_value()) return 0;
  if (parsed) Compare(*part, message);
  const std::optional<ResultPart> again = DecodePart(EncodePart(*part));
  ONEPIECE_CHECK(again.has_value() && again->chunk_bytes() == part->chunk_bytes());
  if (parsed) Compare(*again, message);
  return 0;
}
