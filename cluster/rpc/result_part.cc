#include "cluster/rpc/result_part.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "cluster/base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace onepiece::rpc {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using Response = v1::FetchResultResponse;

constexpr std::uint32_t TagOf(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}
constexpr std::uint32_t kArtifactTag = TagOf(Response::kArtifactFieldNumber);
constexpr std::uint32_t kChunkTag = TagOf(Response::kChunkFieldNumber);

void AppendVarint(std::string& out, std::uint32_t value) {
  std::array<std::uint8_t, 5> bytes{};
  const std::uint8_t* end = CodedOutputStream::WriteVarint32ToArray(value, bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::size_t>(end - bytes.data()));
}

// The place of the chunk in the message, in bytes.
struct Range {
  std::size_t offset = 0, length = 0;
};

// Reads the fields of `input` without the chunk's bytes. Returns false when it is no such message.
bool ReadFields(CodedInputStream& input, std::optional<v1::ResultArtifact>& artifact,
                Range& chunk) {
  while (const std::uint32_t tag = input.ReadTag()) {
    int length = 0;
    if (tag == kArtifactTag) {
      if (!input.ReadVarintSizeAsInt(&length)) return false;
      const auto limit = input.PushLimit(length);
      if (!artifact.has_value()) artifact.emplace();
      if (!artifact->MergeFromCodedStream(&input) || input.BytesUntilLimit() != 0) return false;
      input.PopLimit(limit);
    } else if (tag == kChunkTag) {
      if (!input.ReadVarintSizeAsInt(&length)) return false;
      // protobuf lets the last of several occurrences of a field win.
      chunk = {static_cast<std::size_t>(input.CurrentPosition()), static_cast<std::size_t>(length)};
      if (!input.Skip(length)) return false;
    } else if (!WireFormatLite::SkipField(&input, tag)) {
      return false;
    }
  }
  return input.ConsumedEntireMessage();
}

// Cuts out the pieces of `slices` that make up `range`. They share the slices' memory.
std::vector<grpc::Slice> Cut(const std::vector<grpc::Slice>& slices, Range range) {
  std::vector<grpc::Slice> pieces;
  for (const grpc::Slice& slice : slices) {
    if (range.length == 0) break;
    if (range.offset >= slice.size()) {
      range.offset -= slice.size();
      continue;
    }
    const std::size_t end = std::min(slice.size(), range.offset + range.length);
    pieces.push_back(slice.sub(range.offset, end));
    range = {0, range.length - (end - range.offset)};
  }
  return pieces;
}

}  // namespace

std::size_t ResultPart::chunk_bytes() const {
  std::size_t bytes = 0;
  for (const grpc::Slice& piece : chunk) bytes += piece.size();
  return bytes;
}

grpc::Slice BorrowedSlice(std::shared_ptr<const void> owner, std::span<const std::byte> bytes) {
  using Owner = std::shared_ptr<const void>;
  // The cast is safe because gRPC does not write to a slice that it sends.
  return {const_cast<std::byte*>(bytes.data()), bytes.size(),
          [](void* held) { delete static_cast<Owner*>(held); }, new Owner(std::move(owner))};
}

grpc::ByteBuffer EncodePart(const ResultPart& part) {
  std::string head;
  if (part.artifact.has_value()) {
    AppendVarint(head, kArtifactTag);
    const std::string artifact = part.artifact->SerializeAsString();
    AppendVarint(head, static_cast<std::uint32_t>(artifact.size()));
    head += artifact;
  }
  // An empty chunk is left out, because a generated message would leave it out too.
  if (const std::size_t bytes = part.chunk_bytes(); bytes > 0) {
    AppendVarint(head, kChunkTag);
    AppendVarint(head, static_cast<std::uint32_t>(bytes));
  }
  std::vector<grpc::Slice> slices;
  slices.reserve(part.chunk.size() + 1);
  slices.emplace_back(head);
  slices.insert(slices.end(), part.chunk.begin(), part.chunk.end());
  return {slices.data(), slices.size()};
}

std::optional<ResultPart> DecodePart(grpc::ByteBuffer bytes) {
  if (!bytes.Valid()) return std::nullopt;
  ResultPart part;
  Range chunk;
  {
    grpc::ProtoBufferReader reader(&bytes);
    if (!reader.status().ok()) return std::nullopt;
    CodedInputStream input(&reader);
    if (!ReadFields(input, part.artifact, chunk)) return std::nullopt;
  }
  std::vector<grpc::Slice> slices;
  if (!bytes.Dump(&slices).ok()) return std::nullopt;
  part.chunk = Cut(slices, chunk);
  return part;
}

absl::StatusOr<v1::FetchResultRequest> DecodeFetch(const grpc::ByteBuffer& bytes) {
  v1::FetchResultRequest request;
  grpc::Slice whole;
  if (!bytes.DumpToSingleSlice(&whole).ok() ||
      !request.ParseFromArray(whole.begin(), static_cast<int>(whole.size()))) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_REQUEST",
                           "not a FetchResultRequest");
  }
  return request;
}

}  // namespace onepiece::rpc
