#include "cluster/rpc/result_part.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "cluster/base/check.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/impl/rpc_method.h"
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

grpc::internal::MethodHandler* MakeFetchHandler(
    std::function<grpc::Status(grpc::ServerContext&, const v1::FetchResultRequest&, ResultStream&)>
        handler) {
  return new grpc::internal::TemplatedBidiStreamingHandler<ResultStream, false>(
      [handler = std::move(handler)](grpc::ServerContext* context, ResultStream* stream) {
        v1::FetchResultRequest request;
        if (!stream->Read(&request)) {
          return grpc::Status(grpc::StatusCode::INTERNAL, "the request could not be read");
        }
        return handler(*context, request, *stream);
      });
}

int MethodIndex(const std::string& full_name) {
  const auto* method =
      google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(full_name);
  ONEPIECE_CHECK(method != nullptr);
  return method->index();
}

std::unique_ptr<grpc::ClientReader<ResultPart>> FetchResult(grpc::ChannelInterface& channel,
                                                            const std::string& service,
                                                            grpc::ClientContext& context,
                                                            const v1::FetchResultRequest& request) {
  const std::string name = "/" + service + "/FetchResult";
  // Create() starts the call and copies the path, so `name` may end with this function.
  const grpc::internal::RpcMethod method(name.c_str(), grpc::internal::RpcMethod::SERVER_STREAMING);
  return std::unique_ptr<grpc::ClientReader<ResultPart>>(
      grpc::internal::ClientReaderFactory<ResultPart>::Create(&channel, method, &context, request));
}

}  // namespace onepiece::rpc

namespace grpc {

using onepiece::rpc::ResultPart;

Status SerializationTraits<ResultPart, void>::Serialize(const ResultPart& part, ByteBuffer* buffer,
                                                        bool* own_buffer) {
  std::string head;
  if (part.artifact.has_value()) {
    onepiece::rpc::AppendVarint(head, onepiece::rpc::kArtifactTag);
    const std::string artifact = part.artifact->SerializeAsString();
    onepiece::rpc::AppendVarint(head, static_cast<std::uint32_t>(artifact.size()));
    head += artifact;
  }
  // An empty chunk is left out, because a generated message would leave it out too.
  if (const std::size_t bytes = part.chunk_bytes(); bytes > 0) {
    onepiece::rpc::AppendVarint(head, onepiece::rpc::kChunkTag);
    onepiece::rpc::AppendVarint(head, static_cast<std::uint32_t>(bytes));
  }
  std::vector<Slice> slices;
  slices.reserve(part.chunk.size() + 1);
  slices.emplace_back(head);
  slices.insert(slices.end(), part.chunk.begin(), part.chunk.end());
  *buffer = ByteBuffer(slices.data(), slices.size());
  *own_buffer = true;
  return Status::OK;
}

Status SerializationTraits<ResultPart, void>::Deserialize(ByteBuffer* buffer, ResultPart* part) {
  const Status malformed(StatusCode::INTERNAL, "not a FetchResultResponse");
  *part = {};
  if (!buffer->Valid()) return malformed;
  // gRPC leaves the buffer to the deserialiser, whether it succeeds or fails. `whole` frees it.
  ByteBuffer whole;
  whole.Swap(buffer);
  onepiece::rpc::Range chunk;
  {
    ProtoBufferReader reader(&whole);
    if (!reader.status().ok()) return reader.status();
    google::protobuf::io::CodedInputStream input(&reader);
    if (!onepiece::rpc::ReadFields(input, part->artifact, chunk)) return malformed;
  }
  std::vector<Slice> slices;
  if (const Status status = whole.Dump(&slices); !status.ok()) return status;
  part->chunk = onepiece::rpc::Cut(slices, chunk);
  return Status::OK;
}

}  // namespace grpc
