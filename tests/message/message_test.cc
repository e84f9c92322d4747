#include "cluster/message/message.h"

#include <QtTest>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"
#include "cluster/message/sender_name.h"
#include "tests/test_main.h"

namespace onepiece::message {
namespace {

Buffer Join(const Encoded& encoded) {
  const auto memory = AllocateAligned(encoded.total_bytes);
  std::byte* to = memory.get();
  for (const Piece& piece : encoded.pieces) to = std::ranges::copy(piece.bytes, to).out;
  return {memory, {memory.get(), encoded.total_bytes}};
}

Message Example() {
  Message message;
  message.header.kind = Kind::kWork;
  message.header.uid = base::Uid::GenerateRandom();
  message.header.app = "tiny-wan-t2v";
  message.header.stage = "diffusion";
  message.header.sender = "instance-жук";
  message.header.from = "text_encode";
  message.header.attempt = 3;
  message.header.priority = -7;
  message.header.routing_epoch = 1ULL << 60;
  message.header.ingress_time = base::WallTime(base::Duration(1));
  message.header.deadline = base::MonotonicTime(base::Duration(2));
  message.header.sent_time = base::WallTime(base::Duration(3));
  message.parameters = {
      {"steps", std::int64_t{-20}}, {"guidance", 5.5}, {"prompt", "красный"}, {"fast", true}};
  message.artifacts.push_back(
      {"latents", DType::kF32, {2, 3}, "", Buffer::FromString(std::string(24, '\x40'))});
  message.artifacts.push_back({"none", DType::kBF16, {0, 5}, "", {}});
  message.artifacts.push_back(BytesArtifact("video", "video/mp4", std::string(100, 'v')));
  message.artifacts.back().sha256 = std::string(31, 's') + '\0';
  return message;
}

void CompareMessages(const Message& got, const Message& want) {
  QVERIFY(got.header.kind == want.header.kind);
  QVERIFY(got.header.uid == want.header.uid);
  QCOMPARE(got.header.app, want.header.app);
  QCOMPARE(got.header.stage, want.header.stage);
  QCOMPARE(got.header.sender, want.header.sender);
  QCOMPARE(got.header.from, want.header.from);
  QCOMPARE(got.header.attempt, want.header.attempt);
  QCOMPARE(got.header.priority, want.header.priority);
  QCOMPARE(got.header.routing_epoch, want.header.routing_epoch);
  QVERIFY(got.header.ingress_time == want.header.ingress_time);
  QVERIFY(got.header.deadline == want.header.deadline);
  QVERIFY(got.header.sent_time == want.header.sent_time);
  QVERIFY(got.parameters == want.parameters);
  QCOMPARE(got.artifacts.size(), want.artifacts.size());
  for (std::size_t i = 0; i < want.artifacts.size(); ++i) {
    QCOMPARE(got.artifacts[i].name, want.artifacts[i].name);
    QVERIFY(got.artifacts[i].dtype == want.artifacts[i].dtype);
    QVERIFY(got.artifacts[i].shape == want.artifacts[i].shape);
    QCOMPARE(got.artifacts[i].media_type, want.artifacts[i].media_type);
    QVERIFY(got.artifacts[i].data.text() == want.artifacts[i].data.text());
    QVERIFY(got.artifacts[i].sha256 == want.artifacts[i].sha256);
    QVERIFY(got.artifacts[i].crc32c == base::Crc32c(want.artifacts[i].data.bytes()));
    QCOMPARE(reinterpret_cast<std::uintptr_t>(got.artifacts[i].data.bytes().data()) %
                 kArtifactAlignBytes,
             std::uintptr_t{0});
  }
}

Message RandomMessage(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  Message message = Example();
  message.header.kind = static_cast<Kind>(1 + below(3));
  message.artifacts.clear();
  const std::uint64_t count = below(9);
  for (std::uint64_t i = 0; i < count; ++i) {
    Artifact artifact;
    artifact.name = std::to_string(i);
    artifact.name.append(below(63), 'n');
    artifact.dtype = static_cast<DType>(1 + below(7));
    std::size_t bytes = ElementBytes(artifact.dtype);
    const std::uint64_t rank = artifact.dtype == DType::kBytes ? 1 : below(5);
    for (std::uint64_t d = 0; d < rank; ++d) {
      artifact.shape.push_back(static_cast<std::int64_t>(below(12)));
      bytes *= static_cast<std::size_t>(artifact.shape.back());
    }
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>(random());
    artifact.data = Buffer::FromString(std::move(text));
    message.artifacts.push_back(std::move(artifact));
  }
  return message;
}

}  // namespace

class MessageTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Decode_ReturnsWhatEncodeTook() {
    const Message message = Example();
    const auto encoded = Encode(message, {});
    QVERIFY(encoded.ok());
    for (const Checksum checksum : {Checksum::kVerify, Checksum::kVerified}) {
      const auto decoded = Decode(Join(*encoded), checksum, {});
      QVERIFY2(decoded.ok(), base::Message(decoded.status()).c_str());
      CompareMessages(*decoded, message);
    }
  }

  void Decode_ReturnsWhatEncodeTook_ForRandomMessages() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    for (int i = 0; i < 500; ++i) {
      const Message message = RandomMessage(random);
      const auto encoded = Encode(message, {});
      QVERIFY(encoded.ok());
      const auto decoded = Decode(Join(*encoded), Checksum::kVerify, {});
      QVERIFY2(decoded.ok(), base::Message(decoded.status()).c_str());
      CompareMessages(*decoded, message);
    }
  }

  void Decode_TakesAMessageWithoutAnything() {
    const auto encoded = Encode(Message(), {});
    QVERIFY(encoded.ok());
    const auto decoded = Decode(Join(*encoded), Checksum::kVerify, {});
    QVERIFY(decoded.ok());
    CompareMessages(*decoded, Message());
  }

  void Decode_RefusesTimesOutOfRange() {
    for (const std::int64_t unix_ns :
         {std::int64_t{-1}, std::numeric_limits<std::int64_t>::max()}) {
      Message message = Example();
      message.header.sent_time = base::WallTime(base::Duration(unix_ns));
      const auto encoded = Encode(message, {});
      QVERIFY(encoded.ok());
      const auto decoded = Decode(Join(*encoded), Checksum::kVerify, {});
      QCOMPARE(base::GetReason(decoded.status()).reason, std::string("MALFORMED_MESSAGE"));
    }
  }

  void Decode_AlignsBytesThatAreNot() {
    const Message message = Example();
    const auto encoded = Encode(message, {});
    const Buffer joined = Join(*encoded);
    for (const std::size_t shift : {1, 8, 63}) {
      const auto memory = AllocateAligned(joined.size() + shift);
      std::ranges::copy(joined.bytes(), memory.get() + shift);
      const auto decoded =
          Decode({memory, {memory.get() + shift, joined.size()}}, Checksum::kVerify, {});
      QVERIFY(decoded.ok());
      CompareMessages(*decoded, message);
    }
  }

  void Decode_MapsInPlaceAndKeepsTheBytesAlive() {
    std::weak_ptr<std::byte[]> watch;
    std::vector<Artifact> artifacts;
    {
      const auto encoded = Encode(Example(), {});
      const Buffer joined = Join(*encoded);
      const auto memory = AllocateAligned(joined.size());
      std::ranges::copy(joined.bytes(), memory.get());
      watch = memory;
      const auto decoded = Decode({memory, {memory.get(), joined.size()}}, Checksum::kVerify, {});
      QVERIFY(decoded.ok());
      artifacts = decoded->artifacts;
      QVERIFY(artifacts[0].data.bytes().data() > memory.get());
      QVERIFY(artifacts[0].data.bytes().data() < memory.get() + joined.size());
    }
    QVERIFY(!watch.expired());
    QVERIFY(artifacts[2].data.text() == std::string(100, 'v'));
    artifacts.clear();
    QVERIFY(watch.expired());
  }

  void Encode_GivesPiecesThatKnowTheirChecksumAndBorrowTheTensors() {
    const Message message = Example();
    const auto encoded = Encode(message, {});
    std::uint64_t total = 0;
    bool borrowed = false;
    for (const Piece& piece : encoded->pieces) {
      QCOMPARE(piece.crc32c, base::Crc32c(piece.bytes));
      total += piece.bytes.size();
      borrowed |= piece.bytes.data() == message.artifacts[2].data.bytes().data();
    }
    QCOMPARE(total, encoded->total_bytes);
    QVERIFY(borrowed);
  }

  void Encode_KeepsItsBytes_AfterTheMessageIsGoneAndAfterAMove() {
    Encoded moved;
    {
      auto encoded = Encode(Example(), {});
      moved = std::move(*encoded);
    }
    const auto decoded = Decode(Join(moved), Checksum::kVerify, {});
    QVERIFY(decoded.ok());
    QVERIFY(decoded->artifacts[2].data.text() == std::string(100, 'v'));
  }

  void Encode_RefusesWhatDoesNotFit_data() {
    QTest::addColumn<QString>("what");
    QTest::addColumn<int>("which");
    const char* cases[] = {"app is not",         "stage is not",      "sender is not",
                           "not 1 to 64",        "two artifacts",     "does not fit",
                           "negative dimension", "absurd shape",      "8 dimensions",
                           "not one-dim",        "media type",        "256 artifacts",
                           "256 parameters",     "not 1 to 64",       "is not UTF-8",
                           "larger than 1 MiB",  "name is not UTF-8", "SHA-256 of 31 bytes"};
    for (int i = 0; i < static_cast<int>(std::size(cases)); ++i) {
      QTest::addRow("%d %s", i, cases[i]) << cases[i] << i;
    }
  }
  void Encode_RefusesWhatDoesNotFit() {
    QFETCH(QString, what);
    QFETCH(int, which);
    Message message = Example();
    Artifact& first = message.artifacts[0];
    switch (which) {
      case 0:
        message.header.app = std::string(64, 'a');
        break;
      case 1:
        message.header.stage = std::string(1, '\xff');
        break;
      case 2:
        message.header.sender = std::string("a\0b", 3);
        break;
      case 3:
        first.name.clear();
        break;
      case 4:
        first.name = "video";
        break;
      case 5:
        first.shape = {2, 4};
        break;
      case 6:
        first.shape = {-2, -3};
        break;
      case 7:
        first.shape = {std::int64_t{1} << 62, 4, 4};
        break;
      case 8:
        first.shape = {6, 1, 1, 1, 1, 1, 1, 1, 1};
        break;
      case 9:
        message.artifacts[2].shape = {10, 10};
        break;
      case 10:
        first.media_type = "a b";
        break;
      case 11:
        message.artifacts.resize(257, first);
        break;
      case 12:
        for (int i = 0; i < 257; ++i) message.parameters[std::to_string(i)] = true;
        break;
      case 13:
        message.parameters[std::string(65, 'p')] = true;
        break;
      case 14:
        message.parameters["prompt"] = "\xc0\x80";
        break;
      case 15:
        message.parameters["prompt"] = std::string(1 << 20, 'p');
        break;
      case 16:
        first.name = std::string("a\0b", 3);
        break;
      case 17:
        first.sha256 = std::string(31, 's');
        break;
    }
    const auto encoded = Encode(message, {});
    QVERIFY(absl::IsInvalidArgument(encoded.status()));
    QCOMPARE(base::GetReason(encoded.status()).reason, std::string("MALFORMED_MESSAGE"));
    QVERIFY2(QString::fromStdString(base::Message(encoded.status())).contains(what),
             base::Message(encoded.status()).c_str());
  }

  void SenderName_FitsTheHeader_AndTellsNodesApart() {
    const std::string short_id(63, 'n');
    QCOMPARE(SenderName(short_id), short_id);
    std::string id = "instance-" + std::string(55, 'h');  // 64 bytes.
    for (const std::size_t bytes : {64, 128}) {
      id.resize(bytes, '.');
      const std::string name = SenderName(id);
      const std::uint32_t crc = base::Crc32c(std::as_bytes(std::span(id)));
      QCOMPARE(name, id.substr(0, 54) + "~" + QString::asprintf("%08x", crc).toStdString());
      QCOMPARE(name.size(), std::size_t{63});
      std::string other = id;
      other.back() = 'x';
      QVERIFY(SenderName(other) != name);
      Message message = Example();
      message.header.sender = name;
      QVERIFY(Encode(message, {}).ok());
    }
  }
};

}  // namespace onepiece::message

ONEPIECE_TEST(onepiece::message::MessageTest)
#include "message_test.moc"
