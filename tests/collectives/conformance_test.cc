// The promises of sdk::Group, on every implementation that this build has. Each row is one kind of
// world.
#include <QtTest>
#include <algorithm>
#include <latch>
#include <numeric>

#include "tests/collectives/operations.h"
#include "tests/collectives/worlds.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::collectives {
namespace {

constexpr std::uint32_t kMaxRanks = 8;

/// The next group of a random history: some workers, in any order.
sdk::GroupDescriptor DrawGroup(base::SplitMix64& random, std::uint32_t workers,
                               std::uint64_t epoch) {
  sdk::GroupDescriptor all = GroupOfAll(workers, epoch);
  for (std::size_t i = all.members.size(); i > 1; --i) {
    std::swap(all.members[i - 1], all.members[random.Below(i)]);
  }
  all.members.resize(1 + random.Below(workers));
  all.job = "job " + std::to_string(random.Below(3));
  return all;
}

/// The history of one worker: all draw the same, and each takes part where it is a member.
void Live(World& world, std::uint64_t seed, int steps, std::size_t max_bytes,
          Complaints& complaints) {
  base::SplitMix64 random(seed);
  std::unique_ptr<sdk::Group> group;
  std::uint64_t epoch = 0;
  for (int step = 0; step < steps; ++step) {
    if (step == 0 || random.Below(4) == 0) {
      const auto descriptor = DrawGroup(random, world.workers(), ++epoch);
      group.reset();
      if (std::ranges::count(descriptor.members, world.index()) > 0) {
        auto made = world.MakeGroup(descriptor);
        if (!made.ok()) return complaints.Add(made.status().ToString());
        group = *std::move(made);
      }
    }
    const Operation operation = kOperations[random.Below(std::size(kOperations))];
    const std::uint64_t arguments = random.Next();
    if (group == nullptr) continue;
    const auto status = Try(*group, operation, arguments, max_bytes, Soon());
    if (!status.ok()) {
      return complaints.Add("worker " + std::to_string(world.index()) + ", step " +
                            std::to_string(step) + ": " + status.ToString());
    }
  }
}

}  // namespace

class ConformanceTest : public QObject {
  Q_OBJECT

  std::unique_ptr<Worlds> worlds_;
  QString kind_;

  void OpenAll(std::uint32_t count) {
    worlds_.reset();
    worlds_ = OpenWorlds(kind_, count);
    QVERIFY2(worlds_->trouble().empty(), worlds_->trouble().c_str());
  }
  /// Runs the body for each worker of a group of all, and returns what they answer.
  std::vector<absl::Status> InGroup(std::uint64_t epoch,
                                    const std::function<absl::Status(sdk::Group&)>& body) {
    std::vector<absl::Status> answers(worlds_->count());
    InThreads(worlds_->count(), [&](std::uint32_t i) {
      auto group = worlds_->at(i).MakeGroup(GroupOfAll(worlds_->count(), epoch));
      answers[i] = group.ok() ? body(**group) : group.status();
    });
    return answers;
  }
  static std::string FirstError(const std::vector<absl::Status>& answers) {
    for (const absl::Status& status : answers) {
      if (!status.ok()) return status.ToString();
    }
    return "";
  }

 private Q_SLOTS:
  void initTestCase_data() {
    QTest::addColumn<QString>("kind");
    for (const QString& kind : WorldKinds()) QTest::newRow(qPrintable(kind)) << kind;
  }
  void init() {
    QFETCH_GLOBAL(QString, kind);
    kind_ = kind;
  }
  void cleanup() { worlds_.reset(); }

  void EachOperation_GivesThePlainResult() {
    const std::uint64_t seed = SeedFromEnvironment();
    qInfo("ONEPIECE_SEED=%llu", (unsigned long long)seed);
    const int times = LongRun() ? 200 : 12;
    const std::size_t max_bytes = kind_ == "shm" ? 1'500'000 : 20'000;
    for (std::uint32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
      OpenAll(ranks);
      for (const Operation operation : kOperations) {
        const auto answers = InGroup(1, [&](sdk::Group& group) {
          for (int i = 0; i < times; ++i) {
            const std::uint64_t arguments = seed + static_cast<unsigned>(i) * 1000 + ranks;
            // Large parts are rare, because eight ranks move them fifty times.
            const std::size_t limit = i % 6 == 0 ? max_bytes / ranks : 3000;
            const auto status = Try(group, operation, arguments, limit, Soon());
            if (!status.ok()) return status;
          }
          return absl::OkStatus();
        });
        QVERIFY2(FirstError(answers).empty(),
                 (std::to_string(ranks) + " ranks: " + FirstError(answers)).c_str());
      }
    }
  }

  void RandomHistories_WithRegrouping_Agree() {
    const std::uint64_t seed = SeedFromEnvironment();
    qInfo("ONEPIECE_SEED=%llu", (unsigned long long)seed);
    const int histories = LongRun() ? 100 : kind_ == "gloo" ? 2 : 6;
    for (int history = 0; history < histories; ++history) {
      const std::uint64_t own = seed + static_cast<unsigned>(history);
      OpenAll(2 + static_cast<std::uint32_t>(base::Mix64(own) % (kMaxRanks - 1)));
      Complaints complaints;
      InThreads(worlds_->count(), [&](std::uint32_t i) {
        Live(worlds_->at(i), own, LongRun() ? 400 : 60, 5000, complaints);
      });
      QVERIFY2(complaints.text().empty(), complaints.text().c_str());
    }
  }

  // As a job that is parallel in two ways uses them: rows and columns of its workers.
  void GroupsOfOneEpoch_AreUsedByTurns() {
    OpenAll(4);
    Complaints complaints;
    InThreads(4, [&](std::uint32_t i) {
      const sdk::GroupDescriptor row{"row", 5, {i & 2, (i & 2) + 1}, {}};
      const sdk::GroupDescriptor column{"column", 5, {(i & 1) + 2, i & 1}, {}};
      auto all = worlds_->at(i).MakeGroup(GroupOfAll(4, 5));
      auto by_row = worlds_->at(i).MakeGroup(row);
      auto by_column = worlds_->at(i).MakeGroup(column);
      if (!all.ok() || !by_row.ok() || !by_column.ok()) return complaints.Add("no groups");
      for (std::uint64_t turn = 0; turn < 20; ++turn) {
        for (sdk::Group* group : {by_row->get(), all->get(), by_column->get()}) {
          const Operation operation = kOperations[turn % std::size(kOperations)];
          const auto status = Try(*group, operation, turn, 3000, Soon());
          if (!status.ok()) complaints.Add(status.ToString());
        }
      }
    });
    QVERIFY2(complaints.text().empty(), complaints.text().c_str());
  }

  void WrongArguments_SendNothing() {
    OpenAll(2);
    const auto answers = InGroup(1, [](sdk::Group& group) {
      Memory data(24);
      const std::vector<std::size_t> sizes{8, 16};
      const std::vector<std::size_t> more{8, 24};
      const std::vector<std::size_t> three{8, 8, 8};
      const std::vector<std::size_t> huge{~std::size_t{0}, 25};
      const std::vector<std::size_t> odd{7, 17};
      const sdk::Group::Bytes mine = std::span(data).first(group.rank() == 0 ? 8 : 16);
      using enum sdk::ElementType;
      using enum sdk::Reduction;
      const auto refused = [&](const absl::Status& status, const char* reason) {
        return Reason(status) == reason && status.code() == absl::StatusCode::kInvalidArgument;
      };
      const bool all_refused =
          refused(group.Broadcast(data, 2, Soon()), "BAD_SHAPE") &&
          refused(group.Broadcast(data, -1, Soon()), "BAD_SHAPE") &&
          refused(group.AllGather(mine, more, data, Soon()), "BAD_SHAPE") &&
          refused(group.AllGather(mine, three, data, Soon()), "BAD_SHAPE") &&
          refused(group.AllGather(mine, huge, data, Soon()), "BAD_SHAPE") &&
          refused(group.AllGather(data, sizes, data, Soon()), "BAD_SHAPE") &&
          refused(group.ReduceScatter(data, odd, mine, kF32, kSum, Soon()), "BAD_SHAPE") &&
          refused(group.ReduceScatter(data, sizes, data, kF32, kSum, Soon()), "BAD_SHAPE") &&
          refused(group.AllReduce(std::span(data).first(9), kF64, kSum, Soon()), "BAD_SHAPE") &&
          refused(group.AllToAll(data, sizes, data, more, Soon()), "BAD_SHAPE") &&
          refused(group.AllToAll(data, huge, data, huge, Soon()), "BAD_SHAPE") &&
          refused(group.StartExchange(mine, 2, mine, 0, Soon()), "BAD_SHAPE") &&
          refused(group.StartExchange(mine, 0, mine, 1, Soon()), "BAD_SHAPE") &&
          refused(group.FinishExchange(Soon()), "BAD_CALL");
      if (!all_refused) return absl::InternalError("not refused");
      Memory in(mine.size() == 8 ? 16 : 8);
      const int other = 1 - group.rank();
      auto status = group.StartExchange(mine, other, in, other, Soon());
      if (!status.ok()) return status;
      if (!refused(group.Barrier(Soon()), "BAD_CALL")) return absl::InternalError("not refused");
      status = group.FinishExchange(Soon());
      return status.ok() ? Try(group, Operation::kAllReduce, 7, 3000, Soon()) : status;
    });
    QVERIFY2(FirstError(answers).empty(), FirstError(answers).c_str());
  }

  void WrongGroups_AreRefused() {
    OpenAll(2);
    World& world = worlds_->at(0);
    const auto reason = [&world](std::vector<std::uint32_t> members, std::uint64_t epoch) {
      return Reason(world.MakeGroup({"job", epoch, std::move(members), {}}).status());
    };
    QVERIFY(world.MakeGroup({"job", 4, {0}, {}}).ok());
    QCOMPARE(reason({}, 4), std::string("BAD_GROUP"));
    QCOMPARE(reason({0, 0}, 4), std::string("BAD_GROUP"));
    QCOMPARE(reason({0, 2}, 4), std::string("BAD_GROUP"));
    QCOMPARE(reason({1}, 4), std::string("BAD_GROUP"));
    QCOMPARE(reason({0}, 3), std::string("BAD_GROUP"));
    QCOMPARE(Reason(world.MakeGroup({"job", 4, {0}, {1}}).status()), std::string("BAD_GROUP"));
  }

  void MismatchedCalls_EndTheGroup_AndTheNextWorks_data() {
    QTest::addColumn<QString>("what");
    for (const char* what : {"operation", "size", "root", "type", "reduction"}) {
      QTest::newRow(what) << what;
    }
  }
  void MismatchedCalls_EndTheGroup_AndTheNextWorks() {
    QFETCH(QString, what);
    OpenAll(3);
    const auto call = [&](sdk::Group& group) {
      using enum sdk::ElementType;
      using enum sdk::Reduction;
      const bool differs = group.rank() == 1;
      // What sends and receives nothing from the one that differs sees it at its deadline over
      // gloo.
      const auto deadline = kind_ == "gloo" ? After(std::chrono::milliseconds(500)) : Soon();
      Memory data(differs && what == "size" ? 400 : 200);
      if (what == "operation" && differs) return group.Barrier(deadline);
      if (what == "root") {
        auto status = group.Broadcast(data, differs ? 1 : 0, deadline);
        return status.ok() ? group.Barrier(deadline) : status;
      }
      return group.AllReduce(data, what == "type" && differs ? kI32 : kF32,
                             what == "reduction" && differs ? kMax : kSum, deadline);
    };
    const auto answers = InGroup(1, [&](sdk::Group& group) -> absl::Status {
      const absl::Status status = call(group);
      if (status.ok()) return absl::OkStatus();
      if (group.Barrier(Soon()) == status) return status;
      return absl::InternalError("the group has not ended");
    });
    for (std::size_t i = 0; i < answers.size(); ++i) {
      // Whom the ends of gloo's connections reach first is blamed first.
      const bool late = kind_ == "gloo" && what == "root" && !Reason(answers[i]).empty();
      QVERIFY2(late || Reason(answers[i]) == "RANK_DIFFERS", answers[i].ToString().c_str());
      QVERIFY(late || answers[i].code() == absl::StatusCode::kAborted);
      QVERIFY(sdk::FailedRank(answers[i]) >= 0);
      QVERIFY(sdk::FailedRank(answers[i]) != static_cast<int>(i));
    }
    const auto next = InGroup(
        2, [](sdk::Group& group) { return Try(group, Operation::kAllGather, 3, 3000, Soon()); });
    QVERIFY2(FirstError(next).empty(), FirstError(next).c_str());
  }

  void RankThatDoesNotCome_IsNamedAtTheDeadline() {
    OpenAll(3);
    for (std::uint64_t epoch = 1; epoch <= std::size(kOperations); ++epoch) {
      const Operation operation = kOperations[epoch - 1];
      // All receive from the rank that does not come.
      if (operation == Operation::kBroadcast || operation == Operation::kExchange) continue;
      std::latch answered(3);  // So long rank 2 has its group.
      const auto answers = InGroup(epoch, [&](sdk::Group& group) {
        const auto deadline = After(std::chrono::milliseconds(150));
        const auto status =
            group.rank() == 2 ? absl::OkStatus() : Try(group, operation, epoch, 3000, deadline);
        answered.arrive_and_wait();
        return status;
      });
      for (std::size_t i = 0; i < 2; ++i) {
        QVERIFY2(Reason(answers[i]) == "RANK_SILENT", answers[i].ToString().c_str());
        QCOMPARE(answers[i].code(), absl::StatusCode::kDeadlineExceeded);
        QCOMPARE(sdk::FailedRank(answers[i]), 2);
      }
    }
  }
};

}  // namespace onepiece::collectives

ONEPIECE_TEST(onepiece::collectives::ConformanceTest)
#include "conformance_test.moc"
