#include "cluster/rpc/replicas.h"

#include <QtTest>
#include <map>
#include <set>

#include "cluster/base/status.h"
#include "cluster/rpc/status.h"
#include "tests/test_main.h"

namespace onepiece::rpc {
namespace {

absl::Status Follows(const std::string& leader) {
  std::map<std::string, std::string> metadata;
  if (!leader.empty()) metadata[kLeader] = leader;
  return base::MakeError(absl::StatusCode::kUnavailable, kNotLeader, "follows", metadata);
}

absl::Status Away() { return absl::UnavailableError("connection refused"); }

const base::Duration kAtOnce = base::Duration::zero();

/// A search over a, b and c whose next replica is b:1.
struct AtB {
  AtB() {
    for (;;) {
      search.Restart();
      if (search.Next().address == "b:1") return;
      search.Failed(Away());
    }
  }
  Replicas replicas{{"a:1", "b:1", "c:1"}};
  LeaderSearch search{replicas};
};

}  // namespace

class ReplicasTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void LeaderHint_ReadsTheWire() {
    QCOMPARE(LeaderHint(FromGrpc(ToGrpc(Follows("b:1")))), std::optional<std::string>("b:1"));
    QCOMPARE(LeaderHint(Follows("")), std::optional<std::string>(""));
    QVERIFY(!LeaderHint(Away()).has_value());
    QVERIFY(!LeaderHint(absl::OkStatus()).has_value());
    for (const std::string& bad :
         std::vector<std::string>{"b", ":1", "b:", std::string(400, 'x') + ":1"})
      QCOMPARE(LeaderHint(Follows(bad)), std::optional<std::string>(""));
  }

  void Search_FollowsTheHintAtOnce_AlsoOutsideOfTheList() {
    AtB at;
    QCOMPARE(at.search.Failed(Follows("d:1")), kAtOnce);
    QCOMPARE(at.search.Next().address, std::string("d:1"));
    at.search.Answered();
    QCOMPARE(at.replicas.leader(), std::string("d:1"));
    QCOMPARE(LeaderSearch(at.replicas).Next().address, std::string("d:1"));
    // When that one is gone, the search goes back to the list.
    QCOMPARE(at.search.Failed(Away()), kAtOnce);
    QCOMPARE(at.search.Next().address, std::string("a:1"));
  }

  void Search_WithoutHint_AsksEveryReplicaOnceThenPauses() {
    AtB at;
    std::set<std::string> asked = {at.search.Next().address};
    QCOMPARE(at.search.Failed(Away()), kAtOnce);
    asked.insert(at.search.Next().address);
    QCOMPARE(at.search.Failed(Away()), kAtOnce);
    asked.insert(at.search.Next().address);
    QCOMPARE(asked.size(), std::size_t{3});
    QVERIFY(at.search.Failed(Away()) > kAtOnce);
  }

  void Search_HintLoop_EndsWithAPause() {
    AtB at;
    QCOMPARE(at.search.Failed(Follows("c:1")), kAtOnce);
    QCOMPARE(at.search.Next().address, std::string("c:1"));
    QCOMPARE(at.search.Failed(Follows("b:1")), kAtOnce);  // b was asked, so the rest is next.
    QCOMPARE(at.search.Next().address, std::string("a:1"));
    QVERIFY(at.search.Failed(Follows("b:1")) > kAtOnce);
  }

  void Search_EverNewHints_EndWithAPauseAndKeepFewChannels() {
    AtB at;
    std::size_t asked = 1;
    while (at.search.Failed(Follows("x:" + std::to_string(asked + 1))) == kAtOnce) {
      at.search.Next();
      QVERIFY(++asked <= LeaderSearch::kMaxAsked);
    }
    QCOMPARE(asked, LeaderSearch::kMaxAsked);
  }

  void Search_Pauses_GrowWithTheTimeThatHasPassed() {
    AtB at;
    const base::Duration first = base::Scaled(std::chrono::milliseconds(25));
    base::Duration passed{}, last{};
    for (int rounds = 0; rounds < 40;) {
      const base::Duration pause = at.search.Failed(Follows(""));
      at.search.Next();
      if (pause == kAtOnce) continue;
      ++rounds;
      QVERIFY(pause <= first + passed / 2);
      passed += pause;
      last = pause;
    }
    QVERIFY(last >= base::Scaled(std::chrono::seconds(1)));
    QVERIFY(last <= base::Scaled(std::chrono::seconds(2)));
    at.search.Answered();
    while (at.search.Failed(Away()) == kAtOnce) at.search.Next();
    QCOMPARE(at.search.Failed(Away()), kAtOnce);
  }

  void Search_AnotherCallerFoundTheLeader_IsUsed() {
    Replicas replicas({"a:1", "b:1", "c:1", "d:1", "e:1"});
    LeaderSearch one(replicas), two(replicas);
    const std::string first = one.Next().address;
    QCOMPARE(two.Next().address, first);
    two.Failed(Follows("z:1"));
    two.Next();
    const std::uint64_t found = replicas.found();
    two.Answered();
    QCOMPARE(replicas.found(), found + 1);
    two.Answered();
    QCOMPARE(replicas.found(), found + 1);
    QCOMPARE(one.Failed(Away()), kAtOnce);
    QCOMPARE(one.Next().address, std::string("z:1"));
  }

  void Learn_ReplacesWhatWasLearned_WithinBounds() {
    Replicas replicas({"a:1"});
    std::vector<std::string> many = {"a:1", "nonsense", "b:1", "b:1"};
    for (int i = 0; i < 100; ++i) many.push_back("c:" + std::to_string(i));
    replicas.Learn(many);
    QCOMPARE(replicas.addresses().size(), Replicas::kMaxLearned);
    QCOMPARE(replicas.addresses()[1], std::string("b:1"));
    replicas.Learn({"d:1"});
    replicas.Learn({});
    QCOMPARE(replicas.addresses(), (std::vector<std::string>{"d:1", "a:1"}));
  }

  void Search_AnswerOfNoNodeManager_LeadsToTheNext() {
    for (const absl::StatusCode code :
         {absl::StatusCode::kUnimplemented, absl::StatusCode::kUnknown, absl::StatusCode::kInternal,
          absl::StatusCode::kResourceExhausted}) {
      QVERIFY(IsAboutTheReplica(absl::Status(code, "whoever listens there")));
      QVERIFY(!IsAboutTheReplica(base::MakeError(code, "LOG_BUSY", "a NodeManager says so")));
    }
    QVERIFY(!IsAboutTheReplica(absl::InvalidArgumentError("no such app")));
  }

  void Search_ConfiguredButNotLearned_IsAskedWhenNoneOfTheLearnedAnswers() {
    Replicas replicas({"old:1"});
    replicas.Learn({"a:1", "b:1"});
    LeaderSearch search(replicas);
    while (search.Next().address == "old:1") search.Failed(Away());
    // A follower answers, so the group is up and nobody leads now. The old address would not know
    // better.
    for (int rounds = 0; rounds < 3;) {
      const bool follows = search.Next().address == "a:1";
      if (search.Failed(follows ? Follows("") : Away()) > kAtOnce) ++rounds;
      QVERIFY(rounds == 0 || search.Next().address != "old:1");
    }
    std::set<std::string> asked;
    for (int rounds = 0; rounds < 2;) {
      asked.insert(search.Next().address);
      if (search.Failed(Away()) > kAtOnce) ++rounds;
    }
    QVERIFY(asked.contains("old:1"));
  }

  void Search_LearnedReplica_IsAsked() {
    Replicas replicas({"a:1"});
    LeaderSearch search(replicas);
    QCOMPARE(search.Next().address, std::string("a:1"));
    replicas.Learn({"b:1"});
    QCOMPARE(search.Failed(Away()), kAtOnce);
    QCOMPARE(search.Next().address, std::string("b:1"));
  }
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::ReplicasTest)
#include "replicas_test.moc"
