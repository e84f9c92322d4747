// A ResultPart is a v1::FetchResultResponse on the wire. The tests compare it with the generated
// message in both directions, for any division into pieces, and for bytes that are no message.
#include "cluster/rpc/result_part.h"

#include <QtTest>
#include <random>
#include <string>
#include <vector>

#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

v1::FetchResultResponse RandomResponse(std::mt19937_64& random, std::size_t largest) {
  v1::FetchResultResponse response;
  if (random() % 2 == 0) {
    response.mutable_artifact()->set_artifact("video");
    response.mutable_artifact()->set_size_bytes(static_cast<std::int64_t>(random() >> 2));
    response.mutable_artifact()->set_sha256(std::string(random() % 65, 'a'));
  }
  std::string& chunk = *response.mutable_chunk();
  chunk.resize(
      std::min(largest, std::array<std::size_t, 6>{0, 1, 127, 128, 20'000, largest}[random() % 6]));
  for (char& c : chunk) c = static_cast<char>(random());
  return response;
}

/// Cuts the bytes into pieces of random sizes.
std::vector<grpc::Slice> Pieces(std::string_view bytes, std::mt19937_64& random) {
  std::vector<grpc::Slice> pieces;
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), 1 + random() % 70'000);
    pieces.emplace_back(bytes.data(), size);
    bytes.remove_prefix(size);
  }
  return pieces;
}

std::string Joined(const std::vector<grpc::Slice>& pieces) {
  std::string bytes;
  for (const grpc::Slice& piece : pieces) bytes += ViewOf(piece);
  return bytes;
}

bool Read(std::string_view bytes, std::mt19937_64& random, ResultPart& part) {
  const std::vector<grpc::Slice> pieces = Pieces(bytes, random);
  std::optional<ResultPart> decoded = DecodePart({pieces.data(), pieces.size()});
  if (decoded.has_value()) part = *std::move(decoded);
  return decoded.has_value();
}

bool Same(const ResultPart& part, const v1::FetchResultResponse& response) {
  return part.artifact.has_value() == response.has_artifact() &&
         Joined(part.chunk) == response.chunk() && part.chunk_bytes() == response.chunk().size() &&
         (!part.artifact.has_value() ||
          part.artifact->SerializeAsString() == response.artifact().SerializeAsString());
}

}  // namespace

class ResultPartTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Bytes_AreThoseOfTheGeneratedMessage() {
    std::mt19937_64 random(1);
    for (int i = 0; i < 60; ++i) {
      const v1::FetchResultResponse response = RandomResponse(random, 1 << 20);
      ResultPart part;
      if (response.has_artifact()) part.artifact = response.artifact();
      part.chunk = Pieces(response.chunk(), random);
      const grpc::ByteBuffer buffer = EncodePart(part);
      std::vector<grpc::Slice> slices;
      QVERIFY(buffer.Dump(&slices).ok());
      QVERIFY(Joined(slices) == response.SerializeAsString());
      ResultPart back;
      QVERIFY(Read(Joined(slices), random, back));
      QVERIFY(Same(back, response));
    }
  }

  void WhatIsNoMessage_IsRefusedAsTheGeneratedOneDoes() {
    const google::protobuf::LogSilencer silence;
    std::mt19937_64 random(2);
    int good = 0, bad = 0;
    for (int i = 0; i < 3'000; ++i) {
      v1::FetchResultResponse response = RandomResponse(random, 128);
      std::string bytes = response.SerializeAsString();
      // protobuf reads two messages in a row as one message.
      if (random() % 4 == 0) bytes += RandomResponse(random, 128).SerializeAsString();
      if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
      for (std::uint64_t flips = random() % 3; flips > 0 && !bytes.empty(); --flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      ResultPart part;
      const bool read = Read(bytes, random, part);
      // A transport never gives a buffer without slices.
      if (bytes.empty()) continue;
      QCOMPARE(read, response.ParseFromString(bytes));
      if (read) QVERIFY(Same(part, response));
      ++(read ? good : bad);
    }
    QVERIFY2(good > 200 && bad > 200, qPrintable(QString("%1 %2").arg(good).arg(bad)));
  }

  void BorrowedBytes_LetGoWithTheLastPart() {
    auto owner = std::make_shared<const std::string>("video");
    const std::weak_ptr<const std::string> alive = owner;
    ResultPart part;
    part.chunk = {BorrowedSlice(owner, std::as_bytes(std::span(*owner)))};
    QVERIFY(part.chunk.front().begin() == reinterpret_cast<const uint8_t*>(owner->data()));
    owner.reset();
    grpc::ByteBuffer buffer = EncodePart(part);
    part = {};
    QVERIFY(!alive.expired());
    buffer.Clear();
    QVERIFY(alive.expired());
  }
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::ResultPartTest)
#include "result_part_test.moc"
