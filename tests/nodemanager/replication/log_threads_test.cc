// What callers of a ReplicatedLog see of its threads, on a replica that is alone.
#include <QTemporaryDir>
#include <QtTest>
#include <chrono>
#include <future>

#include "absl/strings/str_cat.h"
#include "nodemanager/replication/replicated_log.h"
#include "tests/eventually.h"
#include "tests/nodemanager/replication/hold.h"
#include "tests/nodemanager/replication/log_node.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using testing::Eventually;
using Proposed = absl::StatusOr<v1::CommandResult>;

// True when the node knows its last slot to be chosen, and the slot is of this kind.
bool HasChosen(Node& node, const std::string& kind) {
  return Eventually(kNodeLimit, [&] {
    const v1::ListLogResponse log = node.log().ListLog({}, 1);
    return log.lines_size() == 1 && log.lines(0).chosen() && log.lines(0).kind() == kind;
  });
}

std::future<absl::Status> ProposeLater(Node& node, const std::string& name) {
  return std::async(std::launch::async, [&node, name] {
    return node.log().Propose(RegisterCommand(MakeNode(name, v1::PROXY), name)).status();
  });
}

}  // namespace

class LogThreadsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    dir_ = std::make_unique<QTemporaryDir>();
    ReplicatedLogOptions options{.data_dir = dir_->path().toStdString(), .name = "nm-1"};
    options.paxos.version = kCommandVersion;
    node_ = std::make_unique<Node>(options);
  }
  void cleanup() { node_.reset(); }

  void Term_BeginsWhenAllIsApplied() {
    Node& node = *node_;
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    QVERIFY(node.Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    node.End();
    QVERIFY(node.Open().ok());
    {
      const Hold hold(node.log());
      QVERIFY(node.log().Start(node.address()).ok());
      QVERIFY(HasChosen(node, "noop"));
      QCOMPARE(Reason(node.log().Term().status()), std::string("NOT_LEADER"));
    }
    QVERIFY(node.WaitUntilLeading());
    QVERIFY(node.Knows("p"));
  }

  void LargeState_IsWrittenWhenTheLogHasGrownByItsSize() {
    Node& node = *node_;
    node.options().snapshot_every = 4;
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    v1::Node big = MakeNode("big", v1::PROXY);
    big.set_detail(std::string(100 << 10, 'x'));
    QVERIFY(node.Propose(RegisterCommand(big)));
    QVERIFY(node.log().TakeSnapshot().ok());
    const std::uint64_t first = node.log().Status().snapshot();
    int count = 0;
    const auto propose = [&] {
      return node.Propose(RegisterCommand(MakeNode(absl::StrCat("n", ++count), v1::PROXY)));
    };
    while (count < 40) QVERIFY(propose());
    QCOMPARE(node.log().Status().snapshot(), first);
    while (count < 70) QVERIFY(propose());
    QVERIFY(Eventually(kNodeLimit, [&] { return node.log().Status().snapshot() > first; }));
  }

  void ProposeAsync_AnswersOnce() {
    Node& node = *node_;
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    const auto propose = [&](const v1::Command& command) {
      const auto promise = std::make_shared<std::promise<Proposed>>();
      // A second answer would throw.
      node.log().ProposeAsync(command, [promise](Proposed result) { promise->set_value(result); });
      return promise->get_future();
    };
    const Proposed result = propose(RegisterCommand(MakeNode("p", v1::PROXY))).get();
    QVERIFY(result.ok() && result->code() == 0);
    QVERIFY(node.Knows("p"));
    QCOMPARE(Reason(propose(v1::Command()).get().status()), std::string("COMMAND_UNREADABLE"));
    {
      const Hold hold(node.log());
      const Proposed late = propose(RegisterCommand(MakeNode("q", v1::PROXY))).get();
      QCOMPARE(late.status().code(), absl::StatusCode::kDeadlineExceeded);
      QCOMPARE(Reason(late.status()), std::string("OUTCOME_UNKNOWN"));
    }
    QVERIFY(Eventually(kNodeLimit, [&] { return node.Knows("q"); }));
    node.log().Stop();
    QCOMPARE(Reason(propose(RegisterCommand(MakeNode("r", v1::PROXY))).get().status()),
             std::string("NOT_LEADER"));
  }

  void CatchUp_WaitsForWhatIsChosen() {
    Node& node = *node_;
    node.options().propose_timeout = std::chrono::milliseconds(50);
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    QVERIFY(node.log().CatchUp().ok());
    std::future<absl::Status> answer;
    {
      const Hold hold(node.log());
      answer = ProposeLater(node, "p");
      QVERIFY(HasChosen(node, "register_node"));
      QCOMPARE(Reason(node.log().CatchUp()), std::string("LOG_BUSY"));
    }
    QVERIFY(Eventually(kNodeLimit, [&] { return node.log().CatchUp().ok(); }));
    QVERIFY(node.Knows("p"));
  }

 private:
  std::unique_ptr<QTemporaryDir> dir_;
  std::unique_ptr<Node> node_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::LogThreadsTest)
#include "log_threads_test.moc"
