#include "nodemanager/replication/encoded_message.h"

#include <QtTest>
#include <memory>
#include <string>

#include "nodemanager/replication/codec.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

paxos::Message AcceptTo(std::uint64_t replica, const std::shared_ptr<const std::string>& payload,
                        std::uint64_t chosen = 4) {
  paxos::Accept accept{.ballot = {3, paxos::ReplicaId{1}}, .first = paxos::Slot{5}, .entries = {}};
  accept.chosen = paxos::Slot{chosen};
  paxos::LogEntry& entry = accept.entries.emplace_back();
  entry.kind = paxos::LogEntry::Kind::kCommand;
  entry.payload = payload;
  return {paxos::ReplicaId{1}, paxos::ReplicaId{replica}, accept};
}

std::string TextOf(const EncodedMessage& message) {
  return {reinterpret_cast<const char*>(message.bytes().begin()), message.bytes().size()};
}

}  // namespace

class EncodedMessageTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void EqualAccepts_AreShared() {
    const auto payload = std::make_shared<const std::string>("command");
    const EncodedMessage message(AcceptTo(2, payload));
    QVERIFY(message.Says(AcceptTo(3, payload)));
    QVERIFY(!message.Says(AcceptTo(3, payload, 3)));
    QVERIFY(!message.Says(AcceptTo(3, std::make_shared<const std::string>("another"))));
    QVERIFY(!message.Says({paxos::ReplicaId{1}, paxos::ReplicaId{3}, paxos::TakeOver{}}));
    QCOMPARE(message.bytes().begin(), message.bytes().begin());  // Encoded once.
  }

  void Bytes_OfSeveralAreOneEnvelope() {
    const auto payload = std::make_shared<const std::string>("command");
    const EncodedMessage one(AcceptTo(2, payload));
    const EncodedMessage two(
        {paxos::ReplicaId{1}, paxos::ReplicaId{2}, paxos::TakeOver{{3, paxos::ReplicaId{1}}}});
    v1::ReplicaEnvelope envelope;
    QVERIFY(envelope.ParseFromString(TextOf(one) + TextOf(two)));
    QCOMPARE(envelope.messages_size(), 2);
    QVERIFY(envelope.messages(0).SerializeAsString() ==
            EncodeMessage(AcceptTo(2, payload)).SerializeAsString());
    QVERIFY(envelope.messages(1).has_take_over());
    QVERIFY(!envelope.has_hello());
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::EncodedMessageTest)
#include "encoded_message_test.moc"
