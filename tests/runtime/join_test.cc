#include "stages/runtime/join.h"

#include <QtTest>
#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::runtime {
namespace {

using Names = std::vector<std::string>;

const base::MonotonicTime kStart{std::chrono::hours(1)};
const Names kBoth = {"text", "image"};

WorkItem Part(const base::Uid& uid, const std::string& from, std::uint32_t attempt = 0,
              const std::string& bytes = "12345") {
  WorkItem item;
  message::Header& header = item.message.header;
  header.uid = uid;
  header.stage = "paint";
  header.from = from;
  header.attempt = attempt;
  header.deadline = kStart + std::chrono::seconds(60);
  item.arrival = kStart;
  item.message.artifacts = {message::BytesArtifact(from + "_embeddings", "", bytes)};
  return item;
}

/// A part that came as a value.
WorkItem LargePart(const base::Uid& uid, const std::string& from, std::size_t bytes) {
  WorkItem part = Part(uid, from, 0, std::string(bytes, 'x'));
  part.by_value = true;
  return part;
}

bool All(const message::Header&) { return true; }

}  // namespace

class JoinTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Add_CompletesWithTheLastPart() {
    JoinTable table({});
    const auto uid = base::Uid::GenerateRandom();
    const auto other = base::Uid::GenerateRandom();
    QVERIFY(!table.Add(Part(uid, "image", 3), kBoth)->has_value());
    QVERIFY(!table.Add(Part(other, "text"), kBoth)->has_value());
    QCOMPARE(table.joins(), std::size_t{2});
    QCOMPARE(table.bytes(), std::size_t{10});
    WorkItem last = Part(uid, "text");
    last.arrival = kStart + std::chrono::seconds(7);
    const auto work = table.Add(last, kBoth);
    QVERIFY(work.ok() && work->has_value());
    const WorkItem& item = **work;
    // The order is that in which the stage names its predecessors, not that of arrival.
    QCOMPARE(item.message.artifacts.size(), std::size_t{2});
    QCOMPARE(item.message.artifacts[0].name, std::string("text_embeddings"));
    QCOMPARE(item.message.artifacts[1].name, std::string("image_embeddings"));
    QCOMPARE(item.message.header.attempt, 3U);
    QVERIFY(item.arrival == last.arrival);
    QCOMPARE(item.parts.size(), std::size_t{2});
    QCOMPARE(item.parts[0].header.attempt, 0U);
    QCOMPARE(item.parts[1].header.from, std::string("image"));
    QCOMPARE(table.joins(), std::size_t{1});
    QCOMPARE(table.bytes(), std::size_t{5});
  }

  void Add_CountsAPartThatComesAgain() {
    JoinTable table({});
    const auto uid = base::Uid::GenerateRandom();
    QVERIFY(!table.Add(Part(uid, "text", 1), kBoth)->has_value());
    for (const std::uint32_t attempt : {1U, 0U})
      QVERIFY(!table.Add(Part(uid, "text", attempt), kBoth)->has_value());
    QCOMPARE(table.duplicates(), std::uint64_t{2});
    QCOMPARE(table.bytes(), std::size_t{5});
    QVERIFY(table.Add(Part(uid, "image"), kBoth)->has_value());
  }

  void Add_ALaterAttemptReplacesThePart() {
    JoinTable table({});
    const auto uid = base::Uid::GenerateRandom();
    QVERIFY(!table.Add(Part(uid, "text", 0, "old"), kBoth)->has_value());
    QVERIFY(!table.Add(Part(uid, "text", 1, "newer"), kBoth)->has_value());
    QCOMPARE(table.duplicates(), std::uint64_t{0});
    QCOMPARE(table.bytes(), std::size_t{5});
    const auto work = table.Add(Part(uid, "image"), kBoth);
    QVERIFY(work.ok() && work->has_value());
    QCOMPARE((*work)->message.header.attempt, std::uint32_t{1});
    QCOMPARE((*work)->message.artifacts.front().data.text(), std::string_view("newer"));
  }

  void Add_OfALargerRunReplacesTheSmaller() {
    JoinTable table({});
    const auto uid = base::Uid::GenerateRandom();
    const auto part = [&](const std::string& from, std::uint64_t run) {
      WorkItem item = Part(uid, from, 0, "run " + std::to_string(run));
      item.message.header.run = run;
      return item;
    };
    QVERIFY(!table.Add(part("text", 1), kBoth)->has_value());
    // The join of the newer run begins anew. What comes of the older run does not complete it.
    QVERIFY(!table.Add(part("image", 2), kBoth)->has_value());
    QVERIFY(!table.Add(part("text", 1), kBoth)->has_value());
    QCOMPARE(table.fenced(), std::uint64_t{2});
    QCOMPARE(table.bytes(), std::size_t{5});
    const auto work = table.Add(part("text", 2), kBoth);
    QVERIFY(work.ok() && work->has_value());
    QCOMPARE((*work)->message.header.run, std::uint64_t{2});
    for (const message::Artifact& artifact : (*work)->message.artifacts)
      QCOMPARE(std::string(artifact.data.text()), std::string("run 2"));
    QCOMPARE(table.bytes(), std::size_t{0});
  }

  void Add_RefusesOneArtifactFromTwoStages() {
    JoinTable table({});
    const auto uid = base::Uid::GenerateRandom();
    WorkItem text = Part(uid, "text");
    text.message.artifacts[0].name = "image_embeddings";
    QVERIFY(!table.Add(text, kBoth)->has_value());
    const auto clash = table.Add(Part(uid, "image"), kBoth);
    QCOMPARE(clash.status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(Reason(clash.status()), std::string("ARTIFACT_TWICE"));
    for (const char* name : {"'image_embeddings'", "'text'", "'image'"})
      QVERIFY2(base::Message(clash.status()).find(name) != std::string::npos, name);
    QCOMPARE(table.joins(), std::size_t{0});
    QCOMPARE(table.bytes(), std::size_t{0});
  }

  void Add_RefusesAStageThatIsNoPredecessor() {
    JoinTable table({});
    const auto uid = base::Uid::GenerateRandom();
    QVERIFY(!table.Add(Part(uid, "text"), kBoth)->has_value());
    QCOMPARE(Reason(table.Add(Part(uid, "sound"), kBoth).status()), std::string("NOT_A_BRANCH"));
    QCOMPARE(table.bytes(), std::size_t{0});
  }

  void Add_RefusesNothingAndSaysHowFullItIs() {
    JoinTable table({.max_joins = 4, .max_bytes = 1000});
    std::vector<base::Uid> jobs;
    const auto begin = [&](const std::string& bytes) {
      jobs.push_back(base::Uid::GenerateRandom());
      QVERIFY(table.Add(Part(jobs.back(), "text", 0, bytes), kBoth).ok());
    };
    begin("");
    QVERIFY(!table.scarce());
    begin("");
    QVERIFY(table.scarce() && !table.full());
    for (int i = 0; i < 3; ++i) begin("");
    QVERIFY(table.full());
    for (const base::Uid& uid : jobs) QVERIFY(table.Add(Part(uid, "image"), kBoth)->has_value());
    QVERIFY(!table.scarce());
    begin(std::string(500, 'x'));
    QVERIFY(table.scarce() && !table.full());
    begin(std::string(500, 'x'));
    QVERIFY(table.full());
    table.Remove(jobs.back());
    QVERIFY(table.scarce() && !table.full());
  }

  void MayCome_KeepsRoomForJoinsThatHaveBegun() {
    JoinTable table({.max_bytes = 100, .max_large_bytes = 1000});
    const base::Uid first = base::Uid::GenerateRandom(), next = base::Uid::GenerateRandom();
    const auto may_come = [&](const base::Uid& uid, const std::string& from, std::uint64_t bytes,
                              std::uint64_t coming = 0) {
      const auto waits = table.MayCome(Part(uid, from).message.header, kBoth, bytes, coming);
      return waits.ok() ? (*waits ? "waits" : "completes") : Reason(waits.status());
    };
    QCOMPARE(may_come(first, "text", 1000), std::string("waits"));
    QCOMPARE(may_come(first, "text", 1000, 500), std::string("JOINS_FULL"));
    QVERIFY(table.Add(LargePart(first, "text", 500), kBoth).ok());
    QCOMPARE(may_come(next, "text", 1), std::string("JOINS_FULL"));
    QCOMPARE(may_come(first, "image", 100000, 5000), std::string("completes"));
    // The pump is not held up, whatever large parts wait.
    QVERIFY(!table.scarce());
    QVERIFY(table.Add(LargePart(first, "image", 500), kBoth)->has_value());
    QCOMPARE(may_come(next, "text", 1), std::string("waits"));
    // Parts that came through the ring do not count.
    QVERIFY(table.Add(Part(first, "text", 0, std::string(5000, 'x')), kBoth).ok());
    QVERIFY(table.full());
    QCOMPARE(may_come(next, "text", 1), std::string("waits"));
  }

  // Two joins have begun, and their other parts do not fit together.
  void MayCome_TheOldestJoinAlwaysMayGoOn() {
    const Names three = {"text", "image", "mask"};
    JoinTable table({.max_large_bytes = 1000});
    const base::Uid first = base::Uid::GenerateRandom(), second = base::Uid::GenerateRandom();
    const auto may_come = [&](const base::Uid& uid, const std::string& from, std::uint64_t bytes) {
      const auto waits = table.MayCome(Part(uid, from).message.header, three, bytes, 0);
      return waits.ok() ? (*waits ? "waits" : "completes") : Reason(waits.status());
    };
    QVERIFY(table.Add(LargePart(first, "text", 400), three).ok());
    QVERIFY(table.Add(LargePart(second, "text", 300), three).ok());
    QCOMPARE(may_come(second, "image", 300), std::string("waits"));
    QVERIFY(table.Add(LargePart(second, "image", 300), three).ok());
    QCOMPARE(may_come(first, "image", 600), std::string("waits"));
    // More than may ever wait together.
    QCOMPARE(may_come(first, "image", 601), std::string("JOIN_TOO_LARGE"));
    QVERIFY(table.Add(LargePart(first, "image", 600), three).ok());
    QCOMPARE(may_come(first, "mask", 5000), std::string("completes"));
    QVERIFY(table.Add(LargePart(first, "mask", 5000), three)->has_value());
    const base::Uid third = base::Uid::GenerateRandom();
    QVERIFY(table.Add(LargePart(third, "text", 400), three).ok());
    QCOMPARE(may_come(third, "image", 100), std::string("JOINS_FULL"));
    QCOMPARE(may_come(second, "mask", 100), std::string("completes"));
    table.Remove(second);
    QCOMPARE(may_come(third, "image", 100), std::string("waits"));
  }

  void Expire_NamesWhatIsMissingAMomentBeforeTheDeadline() {
    JoinTable table({});
    const Names three = {"text", "image", "sound"};
    const auto uid = base::Uid::GenerateRandom();
    QVERIFY(table.Add(Part(uid, "image"), three).ok());
    QVERIFY(table.Expire(kStart + std::chrono::milliseconds(58'999)).empty());
    const auto lost = table.Expire(kStart + std::chrono::seconds(59));
    QCOMPARE(lost.size(), std::size_t{1});
    QVERIFY(lost[0].header.uid == uid);
    QCOMPARE(lost[0].header.stage, std::string("paint"));
    QCOMPARE(Reason(lost[0].why), std::string("BRANCH_LOST"));
    QCOMPARE(base::GetReason(lost[0].why).metadata.at("missing"), std::string("text, sound"));
    QCOMPARE(table.joins(), std::size_t{0});
    QCOMPARE(table.bytes(), std::size_t{0});
  }

  void Expire_LeavesShortJobsNineTenthsOfTheirTime() {
    JoinTable table({});
    WorkItem part = Part(base::Uid::GenerateRandom(), "image");
    part.message.header.deadline = kStart + std::chrono::seconds(2);
    QVERIFY(table.Add(part, kBoth).ok());
    QVERIFY(table.Expire(kStart + std::chrono::milliseconds(1799)).empty());
    QCOMPARE(table.Expire(kStart + std::chrono::milliseconds(1800)).size(), std::size_t{1});
  }

  void Waiting_NamesEachJoinAgainAfterEachPause() {
    using std::chrono::seconds;
    JoinTable table({});
    const auto uid = base::Uid::GenerateRandom();
    QVERIFY(table.Add(Part(uid, "image"), kBoth).ok());
    QVERIFY(table.Waiting(kStart + seconds(4), seconds(5), 9).empty());
    const auto waiting = table.Waiting(kStart + seconds(5), seconds(5), 9);
    QCOMPARE(waiting.size(), std::size_t{1});
    QVERIFY(waiting[0].uid == uid);
    QCOMPARE(waiting[0].from, std::string("image"));
    QVERIFY(table.Waiting(kStart + seconds(9), seconds(5), 9).empty());
    QVERIFY(table.Add(Part(base::Uid::GenerateRandom(), "image"), kBoth).ok());
    QCOMPARE(table.Waiting(kStart + seconds(10), seconds(5), 1).size(), std::size_t{1});
    QCOMPARE(table.Waiting(kStart + seconds(10), seconds(5), 9).size(), std::size_t{1});
    QVERIFY(table.Waiting(kStart + seconds(10), seconds(5), 9).empty());
    // When more wait than may be named at once, each gets its turn, whatever its UID.
    for (int i = 0; i < 20; ++i)
      QVERIFY(table.Add(Part(base::Uid::GenerateRandom(), "image"), kBoth).ok());
    std::set<base::Uid> named;
    for (int look = 3; look < 14; ++look) {
      const auto some = table.Waiting(kStart + seconds(5 * look), seconds(5), 2);
      QCOMPARE(some.size(), std::size_t{2});
      for (const message::Header& header : some) named.insert(header.uid);
    }
    QCOMPARE(named.size(), table.joins());
  }

  void Take_GivesAllPartsOrNone() {
    JoinTable table({});
    const Names three = {"text", "image", "sound"};
    const auto stays = base::Uid::GenerateRandom();
    const auto goes = base::Uid::GenerateRandom();
    for (const auto& uid : {stays, goes}) {
      QVERIFY(table.Add(Part(uid, "text"), three).ok());
      QVERIFY(table.Add(Part(uid, "image", uid == stays ? 9 : 0), three).ok());
    }
    const auto taken = table.Take([](const message::Header& header) { return header.attempt < 9; });
    QCOMPARE(taken.size(), std::size_t{2});
    QVERIFY(taken[0].message.header.uid == goes && taken[1].message.header.uid == goes);
    QCOMPARE(table.joins(), std::size_t{1});
    QCOMPARE(table.bytes(), std::size_t{10});
  }

  void Remove_DropsTheJobAlone() {
    JoinTable table({});
    const auto uid = base::Uid::GenerateRandom();
    const auto other = base::Uid::GenerateRandom();
    QVERIFY(table.Add(Part(uid, "text"), kBoth).ok());
    QVERIFY(table.Add(Part(other, "text"), kBoth).ok());
    table.Remove(uid);
    QCOMPARE(table.bytes(), std::size_t{5});
    QVERIFY(table.Add(Part(other, "image"), kBoth)->has_value());
  }

  void Remove_LeavesALargerRun() {
    JoinTable table({});
    WorkItem part = Part(base::Uid::GenerateRandom(), "text");
    part.message.header.run = 7;
    const base::Uid uid = part.message.header.uid;
    QVERIFY(table.Add(part, kBoth).ok());
    QCOMPARE(table.Remove(uid, 6), std::size_t{0});
    QCOMPARE(table.Remove(uid, 7), std::size_t{1});
    QCOMPARE(table.joins(), std::size_t{0});
  }

  // Parts arrive in any order, repeatedly, and are moved to another table. Every job comes out
  // exactly once with every artifact, and nothing is left.
  void RandomRuns_JoinEveryJobOnce() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed =
        given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    const auto below = [&](std::size_t bound) {
      return static_cast<std::size_t>(random() % bound);
    };
    for (int run = 0; run < 200; ++run) {
      Names predecessors;
      for (std::size_t i = 2 + below(4); i > 0; --i)
        predecessors.push_back("s" + std::to_string(i));
      std::vector<WorkItem> parts;
      const std::size_t jobs = 1 + below(20);
      for (std::size_t i = 0; i < jobs; ++i) {
        const auto uid = base::Uid::GenerateRandom();
        for (const std::string& from : predecessors)
          parts.push_back(Part(uid, from, static_cast<std::uint32_t>(below(3))));
      }
      std::ranges::shuffle(parts, random);
      std::vector<JoinTable> tables(2, JoinTable({}));
      std::size_t at = 0;
      std::set<base::Uid> done;
      const auto add = [&](WorkItem part) {
        const auto work = tables[at].Add(std::move(part), predecessors);
        QVERIFY(work.ok());
        if (!work->has_value()) return;
        QVERIFY(done.insert((*work)->message.header.uid).second);
        QCOMPARE((*work)->message.artifacts.size(), predecessors.size());
        QCOMPARE((*work)->parts.size(), predecessors.size());
      };
      for (const WorkItem& part : parts) {
        // The scheduler drops copies of parts that were joined already. This part was not joined.
        if (below(4) == 0 && !done.contains(part.message.header.uid)) add(part);
        if (!done.contains(part.message.header.uid)) add(part);
        if (below(8) != 0) continue;
        std::vector<WorkItem> moved = tables[at].Take(All);
        QCOMPARE(tables[at].bytes(), std::size_t{0});
        at = 1 - at;
        for (WorkItem& item : moved) add(std::move(item));
      }
      QCOMPARE(done.size(), jobs);
      QCOMPARE(tables[at].joins(), std::size_t{0});
      QCOMPARE(tables[at].bytes(), std::size_t{0});
    }
  }
};

}  // namespace onepiece::runtime

ONEPIECE_TEST(onepiece::runtime::JoinTest)
#include "join_test.moc"
