#include "cluster/message/message.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/message/layout.h"
#include "onepiece/v1/artifact.pb.h"

namespace onepiece::message {
namespace {

constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxMediaTypeBytes = 127;
constexpr std::size_t kSha256Bytes = 32;
constexpr std::array<std::byte, kArtifactAlignBytes> kPadding{};

absl::Status Malformed(std::string_view what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_MESSAGE",
                         "malformed message: " + std::string(what));
}

std::uint64_t Align(std::uint64_t offset) {
  return (offset + kArtifactAlignBytes - 1) / kArtifactAlignBytes * kArtifactAlignBytes;
}

bool IsDType(std::uint32_t value) {
  return value >= static_cast<std::uint32_t>(DType::kBytes) &&
         value <= static_cast<std::uint32_t>(DType::kF32);
}

// --- Shared by both directions.

absl::Status CheckName(std::string_view what, std::string_view name) {
  if (name.empty() || name.size() > kNameBytes) {
    return Malformed(std::string(what) + " name has " + std::to_string(name.size()) +
                     " bytes, not 1 to 64");
  }
  if (!base::IsUtf8(name) || name.find('\0') != std::string_view::npos) {
    return Malformed(std::string(what) + " name is not UTF-8 text");
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const std::string& name, DType dtype, std::span<const std::int64_t> shape,
                        std::uint64_t length) {
  const auto wrong = [&](const char* what) { return Malformed("artifact '" + name + "' " + what); };
  if (shape.size() > kMaxRank) return wrong("has more than 8 dimensions");
  if (dtype == DType::kBytes && shape.size() != 1) return wrong("of bytes is not one-dimensional");
  // Every step bounds the product by the largest message, so it cannot overflow. A zero dimension
  // makes the size 0, and the other dimensions are bounded all the same.
  std::uint64_t bytes = ElementBytes(dtype);
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return wrong("has a negative dimension");
    if (dimension == 0) {
      empty = true;
      continue;
    }
    if (static_cast<std::uint64_t>(dimension) > kMaxMessageBytes / bytes)
      return wrong("has an absurd shape");
    bytes *= static_cast<std::uint64_t>(dimension);
  }
  if ((empty ? 0 : bytes) != length) return wrong("has a length that does not fit its shape");
  return absl::OkStatus();
}

absl::Status CheckMediaType(const std::string& name, const std::string& media_type) {
  const bool printable =
      std::ranges::all_of(media_type, [](char c) { return c > ' ' && c < 0x7f; });
  if (media_type.size() > kMaxMediaTypeBytes || !printable) {
    return Malformed("artifact '" + name + "' has a bad media type");
  }
  return absl::OkStatus();
}

absl::Status CheckSha256(const std::string& name, const std::string& sha256) {
  if (!sha256.empty() && sha256.size() != kSha256Bytes) {
    return Malformed("artifact '" + name + "' has a SHA-256 of " + std::to_string(sha256.size()) +
                     " bytes, not 32");
  }
  return absl::OkStatus();
}

// --- Encoding.

absl::Status CopyText(std::string_view field, std::string_view text, std::span<char> out) {
  if (text.size() >= out.size() || !base::IsUtf8(text) ||
      text.find('\0') != std::string_view::npos) {
    return Malformed(std::string(field) + " is not UTF-8 text of at most " +
                     std::to_string(out.size() - 1) + " bytes");
  }
  std::ranges::copy(text, out.begin());
  return absl::OkStatus();
}

void SetValue(const ParameterValue& value, v1::ParameterEntry& entry) {
  if (const auto* boolean = std::get_if<bool>(&value)) {
    entry.set_boolean(*boolean);
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    entry.set_integer(*integer);
  } else if (const auto* number = std::get_if<double>(&value)) {
    entry.set_number(*number);
  } else {
    entry.set_text(std::get<std::string>(value));
  }
}

absl::Status FillTable(const Message& message, v1::ArtifactTable& table) {
  if (message.artifacts.size() > kMaxArtifacts) return Malformed("more than 256 artifacts");
  if (message.parameters.size() > kMaxParameters) return Malformed("more than 256 parameters");
  std::set<std::string_view> names;
  for (const Artifact& artifact : message.artifacts) {
    ONEPIECE_RETURN_IF_ERROR(CheckName("artifact", artifact.name));
    if (!names.insert(artifact.name).second)
      return Malformed("two artifacts '" + artifact.name + "'");
    ONEPIECE_RETURN_IF_ERROR(
        CheckShape(artifact.name, artifact.dtype, artifact.shape, artifact.data.size()));
    ONEPIECE_RETURN_IF_ERROR(CheckMediaType(artifact.name, artifact.media_type));
    ONEPIECE_RETURN_IF_ERROR(CheckSha256(artifact.name, artifact.sha256));
    v1::ArtifactEntry& entry = *table.add_artifacts();
    entry.set_name(artifact.name);
    entry.set_dtype(static_cast<std::uint32_t>(artifact.dtype));
    entry.mutable_shape()->Add(artifact.shape.begin(), artifact.shape.end());
    entry.set_media_type(artifact.media_type);
    entry.set_length(artifact.data.size());
    entry.set_sha256(artifact.sha256);
  }
  for (const auto& [name, value] : message.parameters) {
    ONEPIECE_RETURN_IF_ERROR(CheckName("parameter", name));
    const auto* text = std::get_if<std::string>(&value);
    if (text != nullptr && !base::IsUtf8(*text))
      return Malformed("parameter '" + name + "' is not UTF-8");
    v1::ParameterEntry& entry = *table.add_parameters();
    entry.set_name(name);
    SetValue(value, entry);
  }
  return absl::OkStatus();
}

// Sets the artifacts' offsets and returns where the message ends.
absl::StatusOr<std::uint64_t> PlaceArtifacts(v1::ArtifactTable& table) {
  // These fields take the same room whatever their values are, but only once they are set.
  for (v1::ArtifactEntry& entry : *table.mutable_artifacts()) {
    entry.set_offset(1);
    entry.set_crc32c(0);
  }
  const std::uint64_t table_bytes = table.ByteSizeLong();
  if (table_bytes > kMaxTableBytes) return Malformed("parameters and names are larger than 1 MiB");
  std::uint64_t end = sizeof(WireHeader) + table_bytes;
  for (v1::ArtifactEntry& entry : *table.mutable_artifacts()) {
    entry.set_offset(Align(end));
    if (entry.length() > kMaxMessageBytes || entry.offset() > kMaxMessageBytes - entry.length()) {
      return Malformed("larger than 4 GiB");
    }
    end = entry.offset() + entry.length();
  }
  return end;
}

// Ten years: no job has longer, and no arithmetic overflows with it.
constexpr base::Duration kLongestTimeLeft = std::chrono::hours(24 * 3650);

absl::StatusOr<WireHeader> FillHeader(const Header& header, base::MonotonicTime now) {
  WireHeader wire{};
  wire.magic = kMagic;
  wire.version = kVersion;
  wire.uid = header.uid.bytes();
  wire.ingress_unix_ns = header.ingress_time.time_since_epoch().count();
  wire.time_left_ns =
      std::clamp(header.deadline - now, base::Duration::zero(), kLongestTimeLeft).count();
  wire.sent_unix_ns = header.sent_time.time_since_epoch().count();
  wire.routing_epoch = header.routing_epoch;
  wire.run = header.run;
  wire.attempt = header.attempt;
  wire.deaths = header.deaths;
  wire.keeper_incarnation = header.keeper_incarnation;
  wire.priority = header.priority;
  wire.kind = static_cast<std::uint8_t>(header.kind);
  ONEPIECE_RETURN_IF_ERROR(CopyText("app", header.app, wire.app));
  ONEPIECE_RETURN_IF_ERROR(CopyText("stage", header.stage, wire.stage));
  ONEPIECE_RETURN_IF_ERROR(CopyText("sender", header.sender, wire.sender));
  ONEPIECE_RETURN_IF_ERROR(CopyText("from", header.from, wire.from));
  ONEPIECE_RETURN_IF_ERROR(CopyText("keeper", header.keeper, wire.keeper));
  return wire;
}

// Appends the artifacts, and the padding before each, to the pieces. The head is the first piece.
void AppendArtifacts(const v1::ArtifactTable& table, Encoded& encoded) {
  std::uint64_t end = encoded.pieces.front().bytes.size();
  const auto append = [&](std::span<const std::byte> bytes, std::uint32_t crc32c) {
    if (!bytes.empty()) encoded.pieces.push_back({bytes, crc32c});
    end += bytes.size();
  };
  for (int i = 0; i < table.artifacts_size(); ++i) {
    const v1::ArtifactEntry& entry = table.artifacts(i);
    const auto padding = std::span(kPadding).first(entry.offset() - end);
    append(padding, base::Crc32c(padding));
    append(encoded.artifacts[static_cast<std::size_t>(i)].data.bytes(), entry.crc32c());
  }
}

// --- Decoding.

std::uint32_t HeaderCrc(WireHeader header) {
  header.header_crc32c = 0;
  return base::Crc32c(std::as_bytes(std::span(&header, 1)));
}

absl::StatusOr<WireHeader> ReadHeader(std::span<const std::byte> bytes) {
  WireHeader wire;
  if (bytes.size() < sizeof(wire)) return Malformed("shorter than its header");
  if (bytes.size() > kMaxMessageBytes) return Malformed("larger than 4 GiB");
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  if (wire.magic != kMagic) return Malformed("wrong magic");
  // The version comes before the checksum, because another version's header may have another size.
  // The error must name the version and not a wrong checksum.
  if (wire.version != kVersion) {
    return Malformed("format version " + std::to_string(wire.version) +
                     "; this program reads version " + std::to_string(kVersion));
  }
  if (HeaderCrc(wire) != wire.header_crc32c) return Malformed("wrong header checksum");
  const auto is_zero = [](std::uint8_t byte) { return byte == 0; };
  if (wire.flags != 0 || !std::ranges::all_of(wire.reserved, is_zero) ||
      !std::ranges::all_of(wire.reserved_end, is_zero)) {
    return Malformed("unknown flags");
  }
  if (wire.kind < static_cast<std::uint8_t>(Kind::kWork) ||
      wire.kind > static_cast<std::uint8_t>(Kind::kReplica)) {
    return Malformed("unknown kind");
  }
  if (wire.payload_bytes != bytes.size() - sizeof(wire)) {
    return Malformed("payload has " + std::to_string(bytes.size() - sizeof(wire)) +
                     " bytes, its header says " + std::to_string(wire.payload_bytes));
  }
  if (wire.table_bytes > kMaxTableBytes || wire.table_bytes > wire.payload_bytes)
    return Malformed("table too long");
  return wire;
}

absl::Status ReadText(std::string_view field, std::span<const char> text, std::string& out) {
  const auto end = std::ranges::find(text, '\0');
  out.assign(text.begin(), end);
  const bool padded =
      end != text.end() && std::all_of(end, text.end(), [](char c) { return c == '\0'; });
  if (!padded || !base::IsUtf8(out))
    return Malformed(std::string(field) + " is not NUL-padded UTF-8");
  return absl::OkStatus();
}

// 2200-01-01. Decode refuses times after it and before 1970, so that no arithmetic overflows with
// them.
constexpr std::int64_t kLatestUnixNs = 7'258'118'400'000'000'000;

absl::Status ReadHeaderFields(const WireHeader& wire, base::MonotonicTime now, Header& header) {
  for (const std::int64_t unix_ns : {wire.ingress_unix_ns, wire.sent_unix_ns}) {
    if (unix_ns < 0 || unix_ns > kLatestUnixNs) return Malformed("a time is out of range");
  }
  const base::Duration time_left(wire.time_left_ns);
  if (time_left < base::Duration::zero() || time_left > kLongestTimeLeft)
    return Malformed("the time left is out of range");
  const auto time = [](std::int64_t unix_ns) { return base::WallTime(base::Duration(unix_ns)); };
  header.kind = static_cast<Kind>(wire.kind);
  header.uid = base::Uid(wire.uid);
  header.run = wire.run;
  header.attempt = wire.attempt;
  header.deaths = wire.deaths;
  header.keeper_incarnation = wire.keeper_incarnation;
  header.priority = wire.priority;
  header.routing_epoch = wire.routing_epoch;
  header.ingress_time = time(wire.ingress_unix_ns);
  header.deadline = now + time_left;
  header.sent_time = time(wire.sent_unix_ns);
  ONEPIECE_RETURN_IF_ERROR(ReadText("app", wire.app, header.app));
  ONEPIECE_RETURN_IF_ERROR(ReadText("stage", wire.stage, header.stage));
  ONEPIECE_RETURN_IF_ERROR(ReadText("sender", wire.sender, header.sender));
  ONEPIECE_RETURN_IF_ERROR(ReadText("from", wire.from, header.from));
  return ReadText("keeper", wire.keeper, header.keeper);
}

// Only one layout is valid: each artifact starts at the first multiple of 64 after the one before,
// and the message ends where the last one ends. So nothing overlaps, is out of bounds, or is left
// over.
absl::Status ReadArtifacts(const v1::ArtifactTable& table, std::uint64_t table_end,
                           const Buffer& bytes, std::vector<Artifact>& artifacts) {
  if (table.artifacts_size() > static_cast<int>(kMaxArtifacts))
    return Malformed("more than 256 artifacts");
  std::set<std::string_view> names;
  std::uint64_t end = table_end;
  for (const v1::ArtifactEntry& entry : table.artifacts()) {
    ONEPIECE_RETURN_IF_ERROR(CheckName("artifact", entry.name()));
    const std::string quoted = "artifact '" + entry.name() + "' ";
    if (!names.insert(entry.name()).second)
      return Malformed("two artifacts '" + entry.name() + "'");
    if (!IsDType(entry.dtype())) return Malformed(quoted + "has an unknown dtype");
    if (entry.layout() != v1::ArtifactEntry::ROW_MAJOR)
      return Malformed(quoted + "has an unknown layout");
    const auto dtype = static_cast<DType>(entry.dtype());
    const std::vector<std::int64_t> shape(entry.shape().begin(), entry.shape().end());
    ONEPIECE_RETURN_IF_ERROR(CheckShape(entry.name(), dtype, shape, entry.length()));
    ONEPIECE_RETURN_IF_ERROR(CheckMediaType(entry.name(), entry.media_type()));
    ONEPIECE_RETURN_IF_ERROR(CheckSha256(entry.name(), entry.sha256()));
    if (entry.offset() != Align(end)) return Malformed(quoted + "is not where it must be");
    if (entry.offset() > bytes.size() || entry.length() > bytes.size() - entry.offset()) {
      return Malformed(quoted + "ends after the message");
    }
    end = entry.offset() + entry.length();
    artifacts.push_back({entry.name(), dtype, shape, entry.media_type(),
                         bytes.Slice(entry.offset(), entry.length()), entry.sha256()});
    if (entry.has_crc32c()) artifacts.back().crc32c = entry.crc32c();
  }
  if (end != bytes.size()) return Malformed("bytes after its end");
  return absl::OkStatus();
}

absl::Status ReadParameters(const v1::ArtifactTable& table, Parameters& parameters) {
  if (table.parameters_size() > static_cast<int>(kMaxParameters))
    return Malformed("more than 256 parameters");
  for (const v1::ParameterEntry& entry : table.parameters()) {
    ONEPIECE_RETURN_IF_ERROR(CheckName("parameter", entry.name()));
    ParameterValue value;
    switch (entry.value_case()) {
      case v1::ParameterEntry::kBoolean:
        value = entry.boolean();
        break;
      case v1::ParameterEntry::kInteger:
        value = static_cast<std::int64_t>(entry.integer());
        break;
      case v1::ParameterEntry::kNumber:
        value = entry.number();
        break;
      case v1::ParameterEntry::kText:
        if (!base::IsUtf8(entry.text()))
          return Malformed("parameter '" + entry.name() + "' is not UTF-8");
        value = entry.text();
        break;
      case v1::ParameterEntry::VALUE_NOT_SET:
        return Malformed("parameter '" + entry.name() + "' has no value");
    }
    if (!parameters.emplace(entry.name(), std::move(value)).second) {
      return Malformed("two parameters '" + entry.name() + "'");
    }
  }
  return absl::OkStatus();
}

Buffer AlignedCopyIfNeeded(const Buffer& bytes) {
  if (reinterpret_cast<std::uintptr_t>(bytes.bytes().data()) % kArtifactAlignBytes == 0)
    return bytes;
  const std::shared_ptr<std::byte[]> copy = AllocateAligned(bytes.size());
  std::ranges::copy(bytes.bytes(), copy.get());
  return {copy, {copy.get(), bytes.size()}};
}

}  // namespace

absl::StatusOr<Encoded> Encode(const Message& message, base::MonotonicTime now) {
  v1::ArtifactTable table;
  ONEPIECE_RETURN_IF_ERROR(FillTable(message, table));
  ONEPIECE_ASSIGN_OR_RETURN(const std::uint64_t total_bytes, PlaceArtifacts(table));
  ONEPIECE_ASSIGN_OR_RETURN(WireHeader header, FillHeader(message.header, now));
  for (int i = 0; i < table.artifacts_size(); ++i) {
    const Buffer& data = message.artifacts[static_cast<std::size_t>(i)].data;
    table.mutable_artifacts(i)->set_crc32c(base::Crc32c(data.bytes()));
  }
  const std::string table_text = table.SerializeAsString();

  Encoded encoded;
  encoded.total_bytes = total_bytes;
  encoded.artifacts = message.artifacts;
  const std::size_t head_bytes = sizeof(header) + table_text.size();
  encoded.head = std::make_unique<std::byte[]>(head_bytes);
  const std::span<std::byte> head(encoded.head.get(), head_bytes);
  std::ranges::copy(std::as_bytes(std::span(table_text)), head.subspan(sizeof(header)).begin());
  // The head's checksum follows at the end: the header holds the checksum of all that comes after
  // it.
  encoded.pieces.push_back({head, 0});
  AppendArtifacts(table, encoded);

  header.table_bytes = static_cast<std::uint32_t>(table_text.size());
  header.payload_bytes = total_bytes - sizeof(header);
  const std::uint32_t table_crc = base::Crc32c(head.subspan(sizeof(header)));
  header.payload_crc32c = table_crc;
  for (const Piece& piece : std::span(encoded.pieces).subspan(1)) {
    header.payload_crc32c =
        base::CombineCrc32c(header.payload_crc32c, piece.crc32c, piece.bytes.size());
  }
  header.header_crc32c = HeaderCrc(header);
  const auto header_bytes = std::as_bytes(std::span(&header, 1));
  std::ranges::copy(header_bytes, head.begin());
  encoded.pieces.front().crc32c =
      base::CombineCrc32c(base::Crc32c(header_bytes), table_crc, table_text.size());
  return encoded;
}

absl::StatusOr<Message> Decode(const Buffer& received, Checksum checksum, base::MonotonicTime now) {
  ONEPIECE_ASSIGN_OR_RETURN(const WireHeader wire, ReadHeader(received.bytes()));
  const Buffer bytes = AlignedCopyIfNeeded(received);
  const auto payload = bytes.bytes().subspan(sizeof(wire));
  if (checksum == Checksum::kVerify && base::Crc32c(payload) != wire.payload_crc32c) {
    return Malformed("wrong payload checksum");
  }
  Message message;
  ONEPIECE_RETURN_IF_ERROR(ReadHeaderFields(wire, now, message.header));
  v1::ArtifactTable table;
  // ReadHeader has bounded table_bytes by 1 MiB, so the cast loses nothing.
  if (!table.ParseFromArray(payload.data(), static_cast<int>(wire.table_bytes)))
    return Malformed("unreadable table");
  ONEPIECE_RETURN_IF_ERROR(
      ReadArtifacts(table, sizeof(wire) + wire.table_bytes, bytes, message.artifacts));
  ONEPIECE_RETURN_IF_ERROR(ReadParameters(table, message.parameters));
  return message;
}

}  // namespace onepiece::message
