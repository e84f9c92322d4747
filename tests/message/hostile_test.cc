// Messages that Encode does not make. The test corrects the checksums after each change, so that
// the checks behind them run.
#include <QtTest>
#include <cstring>
#include <functional>

#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "cluster/message/layout.h"
#include "cluster/message/message.h"
#include "onepiece/v1/artifact.pb.h"
#include "tests/test_main.h"

namespace onepiece::message {
namespace {

std::vector<std::byte> SmallMessage() {
  Message message;
  message.header.uid = base::Uid::GenerateRandom();
  message.header.app = "a";
  message.parameters = {{"p", std::int64_t{1}}};
  message.artifacts.push_back(BytesArtifact("x", "text/plain", "hello"));
  message.artifacts.push_back(
      {"t", DType::kF32, {2}, "", Buffer::FromString(std::string(8, '\1'))});
  const auto encoded = Encode(message, {});
  std::vector<std::byte> bytes;
  for (const Piece& piece : encoded->pieces)
    bytes.insert(bytes.end(), piece.bytes.begin(), piece.bytes.end());
  return bytes;
}

absl::StatusOr<Message> DecodeCopy(std::span<const std::byte> bytes, Checksum checksum) {
  // Exactly as large as the message: sanitizers see a read beyond its end.
  const auto memory = AllocateAligned(bytes.size());
  std::ranges::copy(bytes, memory.get());
  return Decode({memory, {memory.get(), bytes.size()}}, checksum, {});
}

WireHeader ReadWire(std::span<const std::byte> bytes) {
  WireHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header;
}

// A message with this header and payload, whose checksums and payload length are right.
std::vector<std::byte> Seal(WireHeader header, std::span<const std::byte> payload) {
  header.payload_bytes = payload.size();
  header.payload_crc32c = base::Crc32c(payload);
  header.header_crc32c = 0;
  header.header_crc32c = base::Crc32c(std::as_bytes(std::span(&header, 1)));
  std::vector<std::byte> bytes(sizeof(header) + payload.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::ranges::copy(payload, bytes.begin() + sizeof(header));
  return bytes;
}

// SmallMessage() with the table that `change` makes from the message's own. `change` sees offsets
// that fit the changed table.
std::vector<std::byte> WithTable(const std::function<void(v1::ArtifactTable&)>& change) {
  const std::vector<std::byte> valid = SmallMessage();
  WireHeader header = ReadWire(valid);
  v1::ArtifactTable table;
  table.ParseFromArray(valid.data() + sizeof(header), static_cast<int>(header.table_bytes));
  v1::ArtifactTable changed = table;
  change(changed);
  std::uint64_t end = sizeof(header) + changed.ByteSizeLong();
  for (v1::ArtifactEntry& entry : *table.mutable_artifacts()) {
    entry.set_offset((end + 63) / 64 * 64);
    end = entry.offset() + entry.length();
  }
  change(table);
  const std::string text = table.SerializeAsString();
  header.table_bytes = static_cast<std::uint32_t>(text.size());
  std::vector<std::byte> payload(end - sizeof(header));
  std::ranges::copy(std::as_bytes(std::span(text)), payload.begin());
  return Seal(header, payload);
}

void ExpectMalformed(const absl::Status& status, const char* what) {
  QVERIFY2(absl::IsInvalidArgument(status), what);
  QCOMPARE(base::GetReason(status).reason, std::string("MALFORMED_MESSAGE"));
  const QString message = QString::fromStdString(base::Message(status));
  QVERIFY2(message.contains(what), qPrintable(message + " does not say: " + what));
}

}  // namespace

class HostileTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Decode_RefusesATruncationAtEveryByte() {
    const auto bytes = SmallMessage();
    QVERIFY(DecodeCopy(bytes, Checksum::kVerify).ok());
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      for (const Checksum checksum : {Checksum::kVerify, Checksum::kVerified}) {
        const auto decoded = DecodeCopy(std::span(bytes).first(length), checksum);
        QVERIFY2(absl::IsInvalidArgument(decoded.status()), std::to_string(length).c_str());
      }
    }
  }

  void Decode_RefusesATruncationAtEveryByte_EvenWhenItsHeaderFits() {
    const auto bytes = SmallMessage();
    const WireHeader header = ReadWire(bytes);
    for (std::size_t length = 0; length < bytes.size() - sizeof(header); ++length) {
      const auto sealed = Seal(header, std::span(bytes).subspan(sizeof(header), length));
      QVERIFY2(absl::IsInvalidArgument(DecodeCopy(sealed, Checksum::kVerify).status()),
               std::to_string(length).c_str());
    }
  }

  void Decode_RefusesEveryFlippedBit() {
    auto bytes = SmallMessage();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes[i] ^= static_cast<std::byte>(1 << bit);
        const auto decoded = DecodeCopy(bytes, Checksum::kVerify);
        QVERIFY2(absl::IsInvalidArgument(decoded.status()), std::to_string(i).c_str());
        bytes[i] ^= static_cast<std::byte>(1 << bit);
      }
    }
  }

  void Decode_NeverReadsOutside_WhateverAByteIs() {
    // Decode believes the transport about the checksums, so every other check must hold by itself.
    auto bytes = SmallMessage();
    for (std::size_t i = sizeof(WireHeader); i < bytes.size(); ++i) {
      const std::byte before = bytes[i];
      for (int value = 0; value < 256; ++value) {
        bytes[i] = static_cast<std::byte>(value);
        const auto decoded = DecodeCopy(bytes, Checksum::kVerified);
        if (!decoded.ok()) continue;
        for (const Artifact& artifact : decoded->artifacts) {
          QVERIFY(artifact.data.size() <= 8);
          QVERIFY(base::Crc32c(artifact.data.bytes()) != 1);  // Reads every byte of it.
        }
      }
      bytes[i] = before;
    }
  }

  void Decode_NamesTheVersionItCannotRead() {
    WireHeader header = ReadWire(SmallMessage());
    header.version = 1;
    ExpectMalformed(DecodeCopy(Seal(header, {}), Checksum::kVerify).status(),
                    "format version 1; this program reads version 4");
  }

  void Decode_RefusesHeadersThatLie() {
    const auto valid = SmallMessage();
    const auto payload = std::span(valid).subspan(sizeof(WireHeader));
    const auto expect = [&](const char* what, const std::function<void(WireHeader&)>& change) {
      WireHeader header = ReadWire(valid);
      change(header);
      ExpectMalformed(DecodeCopy(Seal(header, payload), Checksum::kVerify).status(), what);
    };
    expect("wrong magic", [](WireHeader& h) { h.magic[0] = 'o'; });
    expect("unknown kind", [](WireHeader& h) { h.kind = 0; });
    expect("unknown kind", [](WireHeader& h) { h.kind = 4; });
    expect("unknown flags", [](WireHeader& h) { h.flags = 1; });
    expect("unknown flags", [](WireHeader& h) { h.reserved_end[3] = 1; });
    expect("table too long", [](WireHeader& h) { h.table_bytes = 0xffffffff; });
    expect("app is not", [](WireHeader& h) { h.app.fill('a'); });
    expect("stage is not", [](WireHeader& h) { h.stage[5] = 'a'; });
    expect("sender is not", [](WireHeader& h) { h.sender[0] = '\x80'; });
    expect("from is not", [](WireHeader& h) { h.from.fill('a'); });
    expect("bytes", [](WireHeader& h) { h.table_bytes = 0; });
    auto longer = valid;
    longer.push_back(std::byte{0});
    ExpectMalformed(DecodeCopy(longer, Checksum::kVerify).status(), "its header says");
    longer.assign(payload.begin(), payload.end());
    longer.push_back(std::byte{0});
    ExpectMalformed(DecodeCopy(Seal(ReadWire(valid), longer), Checksum::kVerify).status(),
                    "bytes after its end");
  }

  void Decode_RefusesTablesThatLie() {
    const auto expect = [&](const char* what,
                            const std::function<void(v1::ArtifactTable&)>& change) {
      ExpectMalformed(DecodeCopy(WithTable(change), Checksum::kVerify).status(), what);
    };
    const auto first = [](v1::ArtifactTable& table) { return table.mutable_artifacts(0); };
    const auto second = [](v1::ArtifactTable& table) { return table.mutable_artifacts(1); };
    QVERIFY(DecodeCopy(WithTable([](auto&) {}), Checksum::kVerify).ok());
    expect("is not where it must be", [&](auto& t) { second(t)->set_offset(first(t)->offset()); });
    expect("is not where it must be",
           [&](auto& t) { second(t)->set_offset(second(t)->offset() + 4); });
    expect("is not where it must be", [&](auto& t) { first(t)->set_offset(0); });
    expect("is not where it must be", [&](auto& t) { first(t)->set_offset(~0ULL); });
    expect("does not fit its shape", [&](auto& t) { second(t)->set_length(12); });
    expect("ends after the message", [&](auto& t) {
      second(t)->set_length(1 << 30);
      second(t)->set_shape(0, 1 << 28);
    });
    expect("absurd shape", [&](auto& t) { second(t)->set_shape(0, std::int64_t{1} << 62); });
    expect("absurd shape", [&](auto& t) {
      second(t)->set_length(0);
      second(t)->add_shape(0);
      second(t)->add_shape(std::numeric_limits<std::int64_t>::max());
    });
    expect("negative dimension", [&](auto& t) { second(t)->set_shape(0, -2); });
    expect("unknown dtype", [&](auto& t) { second(t)->set_dtype(0); });
    expect("unknown dtype", [&](auto& t) { second(t)->set_dtype(263); });
    expect("unknown layout",
           [&](auto& t) { second(t)->set_layout(static_cast<v1::ArtifactEntry::Layout>(9)); });
    expect("two artifacts", [&](auto& t) { second(t)->set_name("x"); });
    expect("not 1 to 64", [&](auto& t) { second(t)->clear_name(); });
    expect("is not UTF-8", [&](auto& t) { second(t)->set_name("\xff"); });
    expect("is not UTF-8", [&](auto& t) { t.mutable_parameters(0)->set_text("\xff"); });
    expect("media type", [&](auto& t) { second(t)->set_media_type("a\nb"); });
    expect("SHA-256 of 33 bytes", [&](auto& t) { second(t)->set_sha256(std::string(33, 's')); });
    expect("256 artifacts", [&](auto& t) {
      for (int i = 0; i < 300; ++i) t.add_artifacts()->set_name(std::to_string(i));
    });
    expect("two parameters", [&](auto& t) { *t.add_parameters() = t.parameters(0); });
    expect("has no value", [&](auto& t) { t.mutable_parameters(0)->clear_value(); });
    expect("not 1 to 64",
           [&](auto& t) { t.mutable_parameters(0)->set_name(std::string(65, 'p')); });
  }

  void Decode_TakesATableWithoutChecksums() {
    const auto decoded = DecodeCopy(
        WithTable([](auto& t) { t.mutable_artifacts(1)->clear_crc32c(); }), Checksum::kVerify);
    QVERIFY(decoded.ok());
    QVERIFY(decoded->artifacts[0].crc32c.has_value());
    QVERIFY(!decoded->artifacts[1].crc32c.has_value());
    QVERIFY(decoded->artifacts[1].sha256.empty());
  }

  void Decode_RefusesATableThatIsNoProtobuf() {
    WireHeader header = ReadWire(SmallMessage());
    const std::vector<std::byte> payload(header.table_bytes, std::byte{0xff});
    ExpectMalformed(DecodeCopy(Seal(header, payload), Checksum::kVerify).status(),
                    "unreadable table");
  }
};

}  // namespace onepiece::message

ONEPIECE_TEST(onepiece::message::HostileTest)
#include "hostile_test.moc"
