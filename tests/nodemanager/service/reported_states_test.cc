#include "nodemanager/service/reported_states.h"

#include <QtTest>
#include <future>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

v1::SetNodeState ChangeOf(const std::string& id, const std::string& detail,
                          std::uint64_t incarnation = 1) {
  v1::SetNodeState change;
  change.set_node_id(id);
  change.set_incarnation(incarnation);
  change.set_detail(detail);
  return change;
}

// Commits a batch when the test says so.
class Commits {
 public:
  Commits() : states([this](const auto& batch) { Commit(batch); }) {}

  // Waits until a batch is being committed, and returns what it holds.
  std::vector<v1::SetNodeState> WaitBegun() {
    base::MutexLock lock(mutex_);
    const bool begun =
        changed_.WaitFor(lock, std::chrono::seconds(10),
                         [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return under_way_; });
    if (!begun) qFatal("nothing is committed");
    return batch_;
  }
  void End(const absl::Status& result) {
    const base::MutexLock lock(mutex_);
    result_ = result;
    under_way_ = false;
    changed_.NotifyAll();
  }

 private:
  void Commit(const std::vector<ReportedStates::Waiting>& batch) {
    absl::Status result;
    {
      base::MutexLock lock(mutex_);
      batch_.clear();
      for (const ReportedStates::Waiting& waiting : batch) batch_.push_back(waiting.change);
      under_way_ = true;
      changed_.NotifyAll();
      changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !under_way_; });
      result = result_;
    }
    for (const ReportedStates::Waiting& waiting : batch) {
      for (const ReportedStates::Answer& answer : waiting.answers) answer(result);
    }
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  bool under_way_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<v1::SetNodeState> batch_ ABSL_GUARDED_BY(mutex_);
  absl::Status result_ ABSL_GUARDED_BY(mutex_);

 public:
  ReportedStates states;
};

// The answer to one call.
class Answered {
 public:
  ReportedStates::Answer Take() {
    return [this](const absl::Status& status) { promise_.set_value(status); };
  }
  absl::Status Get() { return promise_.get_future().get(); }

 private:
  std::promise<absl::Status> promise_;
};

}  // namespace

class ReportedStatesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Reports_ThatComeDuringACommit_AreTheNext() {
    Commits commits;
    Answered first;
    commits.states.Add(ChangeOf("first", ""), first.Take());
    QCOMPARE(commits.WaitBegun().size(), std::size_t{1});
    std::vector<Answered> others(100);
    for (std::size_t i = 0; i < others.size(); ++i)
      commits.states.Add(ChangeOf(absl::StrCat("node-", i), ""), others[i].Take());
    commits.End(absl::OkStatus());
    QVERIFY(first.Get().ok());
    QCOMPARE(commits.WaitBegun().size(), others.size());
    commits.End(absl::OkStatus());
    for (Answered& each : others) QVERIFY(each.Get().ok());
  }

  void Reports_OfOneIncarnation_AreOneChange() {
    Commits commits;
    Answered first, older, newer, next_life;
    commits.states.Add(ChangeOf("first", ""), first.Take());
    (void)commits.WaitBegun();
    commits.states.Add(ChangeOf("node", "older"), older.Take());
    commits.states.Add(ChangeOf("node", "newer"), newer.Take());
    commits.states.Add(ChangeOf("node", "next life", 2), next_life.Take());
    commits.End(absl::OkStatus());
    QVERIFY(first.Get().ok());
    const std::vector<v1::SetNodeState> batch = commits.WaitBegun();
    QCOMPARE(batch.size(), std::size_t{2});
    QCOMPARE(batch[0].detail(), std::string("newer"));
    QCOMPARE(batch[1].detail(), std::string("next life"));
    commits.End(base::MakeError(absl::StatusCode::kUnavailable, "NO_LOG", "test"));
    for (Answered* each : {&older, &newer, &next_life})
      QCOMPARE(Reason(each->Get()), std::string("NO_LOG"));
  }

  void Add_AfterStop_IsRefused() {
    Commits commits;
    commits.states.Stop();
    Answered late;
    commits.states.Add(ChangeOf("late", ""), late.Take());
    QCOMPARE(Reason(late.Get()), std::string("SHUTTING_DOWN"));
  }

  void Add_WhenTooManyWait_IsRefused() {
    Commits commits;
    std::vector<Answered> answers(ReportedStates::kMaxAnswers + 2);
    commits.states.Add(ChangeOf("first", ""), answers[0].Take());
    (void)commits.WaitBegun();
    for (std::size_t i = 1; i < answers.size(); ++i)
      commits.states.Add(ChangeOf("node", ""), answers[i].Take());
    QCOMPARE(Reason(answers.back().Get()), std::string("REPORTS_BUSY"));
    commits.End(absl::OkStatus());
    (void)commits.WaitBegun();
    commits.End(absl::OkStatus());
    for (std::size_t i = 0; i + 1 < answers.size(); ++i) QVERIFY(answers[i].Get().ok());
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ReportedStatesTest)
#include "reported_states_test.moc"
