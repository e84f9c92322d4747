// Tests the messages between replicas: what is sent arrives, and nothing that a peer may send does
// harm.
#include "nodemanager/replication/codec.h"

#include <google/protobuf/stubs/logging.h>

#include <QtTest>
#include <random>

#include "absl/strings/str_cat.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "tests/nodemanager/replication/durable.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using paxos::Slot;

constexpr paxos::ReplicaId kFrom{7}, kTo{8};
constexpr paxos::Ballot kBallot{3, paxos::ReplicaId{0xfedcba9876543210}}, kOtherBallot{2, kTo};

paxos::Time At(std::int64_t ns) { return paxos::Time(paxos::Duration(ns)); }

std::vector<paxos::Message> OneOfEach() {
  const paxos::LogEntry command = CommandAt(Slot{1}, 1, std::string("pay\0load", 8)).entry;
  const paxos::LogEntry members{paxos::LogEntry::Kind::kMembers, 0, nullptr, ThreeSeats()};
  std::vector<paxos::Message> all;
  const auto add = [&all](auto body) { all.push_back({kFrom, kTo, std::move(body)}); };
  add(paxos::PreVote{kBallot, Slot{5}, kOtherBallot});
  add(paxos::PreVoteReply{kBallot, true, kOtherBallot, Slot{6}});
  add(paxos::Prepare{kBallot, Slot{7}, {}});
  add(paxos::Promise{kBallot,
                     true,
                     kBallot,
                     Slot{8},
                     {{Slot{9}, kOtherBallot, command}, {Slot{11}, kBallot, {}}}});
  add(paxos::Promise{kBallot, false, {}, Slot{8}, {}});
  add(paxos::Accept{
      kBallot, Slot{12}, {command, {}, members}, Slot{11}, At(-5), {Slot{10}, 0xfedcba98}});
  add(paxos::Accept{kBallot, Slot{1}, {}, Slot{0}, At(0)});
  add(paxos::Accepted{
      kBallot, true, kBallot, Slot{14}, At(1), At(1'000'000'000'000), 2, {Slot{13}, 0xfedcba97}});
  add(paxos::InstallSnapshot{kBallot, SnapshotAt(Slot{100}, "state"), At(17)});
  add(paxos::Join{"nodemanager-3", "localhost:3", Slot{3}, 1});
  add(paxos::TakeOver{kBallot});
  add(paxos::ReadIndexRequest{0xfedcba9876543210});
  add(paxos::ReadIndex{0xfedcba9876543210, true, Slot{15}});
  add(paxos::ReadIndex{1, false, {}});
  return all;
}

v1::ReplicaMessage Wire(const paxos::Message& message) { return EncodeMessage(message); }

QString Field(v1::ReplicaMessage message) {
  const auto decoded = DecodeMessage(std::move(message), kFrom, kTo);
  if (decoded.ok()) return "accepted";
  const base::ErrorReason reason = base::GetReason(decoded.status());
  if (reason.reason != "BAD_MESSAGE") return QString::fromStdString(decoded.status().ToString());
  return QString::fromStdString(reason.metadata.at("field"));
}

}  // namespace

class CodecTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void EveryMessage_ArrivesAsSent() {
    QSet<int> kinds;
    for (const paxos::Message& message : OneOfEach()) {
      const v1::ReplicaMessage wire = Wire(message);
      v1::ReplicaMessage received;
      QVERIFY(received.ParseFromString(wire.SerializeAsString()));
      kinds.insert(received.body_case());
      const auto decoded = DecodeMessage(std::move(received), kFrom, kTo);
      QVERIFY2(decoded.ok(), decoded.status().ToString().c_str());
      QCOMPARE(decoded->from, message.from);
      QCOMPARE(decoded->to, message.to);
      QCOMPARE(decoded->body.index(), message.body.index());
      QCOMPARE(Wire(*decoded).DebugString(), wire.DebugString());
    }
    QCOMPARE(kinds.size(), static_cast<int>(std::variant_size_v<decltype(paxos::Message::body)>));
  }

  // This message and the one of the next test carry everything else. They are compared field by
  // field, and not through the encoder.
  void Accept_ArrivesFieldByField() {
    v1::ReplicaMessage wire = Wire(OneOfEach()[5]);
    const auto decoded = DecodeMessage(std::move(wire), kFrom, kTo);
    QVERIFY(decoded.ok());
    const auto& accept = std::get<paxos::Accept>(decoded->body);
    QVERIFY(accept.ballot == kBallot);
    QCOMPARE(accept.first, Slot{12});
    QCOMPARE(accept.chosen, Slot{11});
    QVERIFY(accept.sent == At(-5));
    QCOMPARE(accept.entries.size(), std::size_t{3});
    QVERIFY(accept.entries[0].kind == paxos::LogEntry::Kind::kCommand);
    QCOMPARE(accept.entries[0].version, 1U);
    QCOMPARE(*accept.entries[0].payload, std::string("pay\0load", 8));
    QVERIFY(accept.entries[1].kind == paxos::LogEntry::Kind::kNoop);
    QVERIFY(accept.entries[1].payload == nullptr);
    QVERIFY(accept.entries[2].members == ThreeSeats());
    QVERIFY(accept.agreed == (paxos::StateHash{Slot{10}, 0xfedcba98}));
  }

  void Accepted_ArrivesFieldByField() {
    v1::ReplicaMessage wire = Wire(OneOfEach()[7]);
    const auto decoded = DecodeMessage(std::move(wire), kFrom, kTo);
    QVERIFY(decoded.ok());
    const auto& accepted = std::get<paxos::Accepted>(decoded->body);
    QVERIFY(accepted.ballot == kBallot && accepted.promised == kBallot && accepted.granted);
    QCOMPARE(accepted.match, Slot{14});
    QVERIFY(accepted.sent == At(1) && accepted.local == At(1'000'000'000'000));
    QCOMPARE(accepted.version, 2U);
    QVERIFY(accepted.hashed == (paxos::StateHash{Slot{13}, 0xfedcba97}));
  }

  void BadMessages_NameTheField() {
    QCOMPARE(Field({}), QString("body"));
    const std::vector<paxos::Message> all = OneOfEach();
    const auto spoiled = [&all](std::size_t index, auto spoil) {
      v1::ReplicaMessage wire = Wire(all[index]);
      spoil(wire);
      return Field(std::move(wire));
    };
    const std::uint64_t huge = ~std::uint64_t{0};
    QCOMPARE(spoiled(0, [](auto& m) { m.mutable_pre_vote()->clear_ballot(); }), "pre_vote.ballot");
    QCOMPARE(spoiled(0, [&](auto& m) { m.mutable_pre_vote()->set_chosen(huge); }),
             "pre_vote.chosen");
    QCOMPARE(
        spoiled(1, [](auto& m) { m.mutable_pre_vote_reply()->mutable_promised()->set_replica(0); }),
        "pre_vote_reply.promised");
    QCOMPARE(spoiled(2, [&](auto& m) { m.mutable_prepare()->mutable_ballot()->set_round(huge); }),
             "prepare.ballot");
    QCOMPARE(spoiled(2, [](auto& m) { m.mutable_prepare()->mutable_released()->set_round(1); }),
             "prepare.released");
    QCOMPARE(spoiled(3, [](auto& m) { m.mutable_promise()->mutable_accepted(1)->set_slot(9); }),
             "promise.accepted.slot");
    QCOMPARE(spoiled(3, [](auto& m) { m.mutable_promise()->mutable_accepted(0)->set_slot(0); }),
             "promise.accepted.slot");
    QCOMPARE(spoiled(3, [](auto& m) { m.mutable_promise()->mutable_accepted(0)->clear_ballot(); }),
             "promise.accepted.ballot");
    QCOMPARE(spoiled(3, [](auto& m) { m.mutable_promise()->mutable_accepted(0)->clear_entry(); }),
             "promise.accepted.entry");
    QCOMPARE(spoiled(3,
                     [](auto& m) {
                       for (int i = 0; i <= kMaxEntries; ++i)
                         *m.mutable_promise()->add_accepted() = m.promise().accepted(1);
                     }),
             "promise.accepted");
    QCOMPARE(spoiled(5, [](auto& m) { m.mutable_accept()->set_first(0); }), "accept.first");
    QCOMPARE(spoiled(5, [&](auto& m) { m.mutable_accept()->set_first(huge); }), "accept.first");
    QCOMPARE(spoiled(5,
                     [](auto& m) {
                       for (int i = 0; i < kMaxEntries; ++i) m.mutable_accept()->add_entries();
                     }),
             "accept.entries");
    QCOMPARE(spoiled(5,
                     [](auto& m) {
                       m.mutable_accept()->mutable_entries(0)->mutable_payload()->resize(
                           kMaxPayloadBytes + 1);
                     }),
             "entry.payload");
    QCOMPARE(spoiled(7, [&](auto& m) { m.mutable_accepted()->set_match(huge); }), "accepted.match");
    QCOMPARE(spoiled(5, [&](auto& m) { m.mutable_accept()->set_agreed_slot(huge); }),
             "accept.agreed_slot");
    QCOMPARE(spoiled(7, [&](auto& m) { m.mutable_accepted()->set_hashed_slot(huge); }),
             "accepted.hashed_slot");
    QCOMPARE(spoiled(8, [](auto& m) { m.mutable_install_snapshot()->clear_snapshot(); }),
             "install_snapshot.snapshot");
    QCOMPARE(spoiled(8,
                     [](auto& m) {
                       m.mutable_install_snapshot()->mutable_snapshot()->mutable_state()->resize(
                           kMaxSnapshotBytes + 1);
                     }),
             "install_snapshot.snapshot.state");
    // The limit is for the network. A larger snapshot on our own disk can be read.
    v1::LogSnapshot stored;
    stored.mutable_state()->resize(kMaxSnapshotBytes + 1);
    QVERIFY(DecodeSnapshot(std::move(stored)).ok());
    QCOMPARE(spoiled(9, [](auto& m) { m.mutable_join()->clear_name(); }), "join.name");
    QCOMPARE(spoiled(9, [](auto& m) { m.mutable_join()->mutable_address()->resize(256, 'a'); }),
             "join.address");
    QCOMPARE(spoiled(10, [](auto& m) { m.mutable_take_over()->clear_released(); }),
             "take_over.released");
  }

  void BadEntries_NameTheField() {
    const auto field = [](auto spoil) {
      v1::LogEntry entry;
      spoil(entry);
      const auto decoded = DecodeEntry(std::move(entry));
      return decoded.ok()
                 ? QString("accepted")
                 : QString::fromStdString(base::GetReason(decoded.status()).metadata.at("field"));
    };
    const auto seats = [](v1::LogEntry& entry) {
      entry.set_kind(v1::LogEntry::MEMBERS);
      EncodeSeats(ThreeSeats(), entry.mutable_seats());
    };
    QCOMPARE(field([&](auto& e) { seats(e); }), "accepted");
    QCOMPARE(field([](auto& e) { e.set_kind(static_cast<v1::LogEntry::Kind>(3)); }), "entry.kind");
    QCOMPARE(field([](auto& e) { e.set_payload("x"); }), "entry.payload");
    QCOMPARE(field([](auto& e) { e.add_seats(); }), "entry.seats");
    QCOMPARE(field([](auto& e) { e.set_kind(v1::LogEntry::MEMBERS); }), "entry.seats");
    QCOMPARE(field([&](auto& e) {
               seats(e);
               e.mutable_seats(2)->clear_name();
             }),
             "seat.name");
    QCOMPARE(field([&](auto& e) {
               seats(e);
               e.mutable_seats(2)->set_name(e.seats(0).name());
             }),
             "seat.name");
    QCOMPARE(field([&](auto& e) {
               seats(e);
               e.mutable_seats(2)->set_replica(e.seats(0).replica());
             }),
             "seat.replica");
    QCOMPARE(field([&](auto& e) {
               for (int i = 0; i < 3; ++i) seats(e);
             }),
             "seats");
  }

  // Any bytes give an error, or a message that can be encoded again.
  void ChangedBytes_NeverHurt() {
    const std::uint64_t seed = base::RandomU64();
    qInfo("seed %llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    const google::protobuf::LogSilencer silencer;
    int decoded = 0, refused = 0, unparsed = 0;
    for (const paxos::Message& message : OneOfEach()) {
      const std::string good = Wire(message).SerializeAsString();
      for (int round = 0; round < 3000; ++round) {
        std::string bytes = good;
        if (round % 3 == 0) bytes.resize(random() % (bytes.size() + 1));
        for (std::uint64_t flips = random() % 4; flips > 0 && !bytes.empty(); --flips)
          bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
        v1::ReplicaMessage wire;
        if (!wire.ParseFromString(bytes)) {
          ++unparsed;
          continue;
        }
        const auto result = DecodeMessage(std::move(wire), kFrom, kTo);
        ++(result.ok() ? decoded : refused);
        if (result.ok()) QCOMPARE(Field(Wire(*result)), QString("accepted"));
        if (!result.ok()) QCOMPARE(base::GetReason(result.status()).reason, "BAD_MESSAGE");
      }
    }
    qInfo("%d decoded, %d refused, %d no protobuf", decoded, refused, unparsed);
    QVERIFY(decoded > 1000 && refused > 100 && unparsed > 1000);
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::CodecTest)
#include "codec_test.moc"
