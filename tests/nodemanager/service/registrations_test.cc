#include <QTcpServer>
#include <QTemporaryDir>
#include <QtTest>
#include <atomic>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/nodemanager/service/served_node_manager.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {

class RegistrationsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Registrations_AtOneTime_AreBounded() {
    const QTemporaryDir dir;
    // A host alone gets half of the places.
    ServedNodeManager server(dir.path().toStdString(), {},
                             {.max_registrations = 4, .dial_limit = kLimit});
    // It takes connections and never answers. A name is dialled with gRPC, which waits for that.
    QTcpServer silent;
    QVERIFY(silent.listen(QHostAddress::LocalHost));
    v1::Node node = MakeNode("slow", v1::PROXY);
    node.set_address(absl::StrCat("localhost:", silent.serverPort()));
    std::vector<std::jthread> callers;
    for (int i = 0; i < 2; ++i) callers.emplace_back([&] { (void)server.Register(node); });
    QTRY_COMPARE_WITH_TIMEOUT(server.service().registrations(), std::size_t{2}, 20000);
    const absl::Status refused = server.Register(MakeNode("one-more", v1::PROXY)).status();
    QCOMPARE(Reason(refused), std::string("REGISTRATIONS_BUSY"));
    // It is worth asking again soon, because a registration does not take long.
    QCOMPARE(base::GetReason(refused).metadata.at(rpc::kRetryAfterMs), std::string("200"));
    silent.close();
    server.Shutdown();
  }

  // As fast as calls go, from one host: nodes that begin anew each time, and addresses that nobody
  // can reach. The leader goes on leading, and answers others.
  void Flood_OfOneHost_LeavesTheLeaderToOthers() {
    const QTemporaryDir dir;
    ServedNodeManager server(dir.path().toStdString(), {},
                             {.dial_limit = std::chrono::milliseconds(300)});
    rpc::Server answers{rpc::ServerOptions{}};
    QVERIFY(answers.Start().ok());
    v1::Node calm = MakeNode("calm", v1::PROXY);
    calm.set_address(answers.address());
    QVERIFY(server.Register(calm).ok());
    const LeaderTerm term = server.controller().Term().value();
    std::atomic<std::uint64_t> number{1}, taken{0}, refused{0};
    {
      std::vector<std::jthread> flood;
      for (int i = 0; i < 64; ++i) {
        flood.emplace_back([&](const std::stop_token& stop) {
          // Each has a connection of its own: the host's share does not grow with them.
          const auto connection = server.Connect();
          while (!stop.stop_requested()) {
            const std::uint64_t mine = ++number;
            v1::Node node = MakeNode("flood", v1::PROXY, mine);
            node.set_address(mine % 2 == 0 ? answers.address()
                                           : absl::StrCat("127.0.0.1:", 1 + mine % 1000));
            const absl::Status status = server.Register(*connection, node).status();
            if (status.ok()) ++taken;
            if (Reason(status) == "REGISTRATIONS_BUSY") ++refused;
          }
        });
      }
      // Of 64 callers at a time half find no place.
      QTRY_VERIFY_WITH_TIMEOUT(taken > 100 && refused > 100, 60000);
      for (int i = 0; i < 100; ++i) QVERIFY(server.Report(ReadyReport("calm")).ok());
    }
    QVERIFY(server.controller().Term().value() == term);
    bool is_known = false;
    std::size_t nodes = 0;
    server.controller().Read([&](const StateMachine& state) {
      is_known = state.nodes().at("calm").node().state() == v1::Node::READY;
      nodes = state.nodes().size();
    });
    QVERIFY(is_known);
    QCOMPARE(nodes, std::size_t{2});
    server.Shutdown();
  }

  // It goes on asking because the answer was lost, so it cannot report yet.
  void NodeThatAsksAgain_IsAlive() {
    const QTemporaryDir dir;
    ServedNodeManager server(dir.path().toStdString());
    const v1::Node node = MakeNode("late", v1::PROXY);
    QVERIFY(server.Register(node).ok());
    const auto state_of = [&] {
      v1::Node::State state{};
      server.controller().Read(
          [&](const StateMachine& machine) { state = machine.nodes().at("late").node().state(); });
      return state;
    };
    for (int i = 0; i < 4; ++i) {
      server.Pass(kDeadAfter / 2);
      QVERIFY(server.Register(node).ok());
      QCOMPARE(state_of(), v1::Node::STARTING);
    }
    server.Pass(kDeadAfter + kDeadAfter / 10);
    QCOMPARE(state_of(), v1::Node::DEAD);
    server.Shutdown();
  }

  void Newcomers_ThatComeTogether_AreAllAssigned() {
    const QTemporaryDir dir;
    ServedNodeManager server(dir.path().toStdString(), {MakeWorkflow("app", {"one", "two"})});
    constexpr int kCallers = 16, kEach = 8;
    std::atomic<int> registered{0};
    {
      std::vector<std::jthread> callers;
      for (int caller = 0; caller < kCallers; ++caller) {
        callers.emplace_back([&, caller] {
          for (int i = 0; i < kEach; ++i) {
            const std::string id = absl::StrCat("i-", caller, "-", i);
            registered += server.Register(MakeNode(id, v1::INSTANCE)).ok() ? 1 : 0;
          }
        });
      }
    }
    QCOMPARE(registered.load(), kCallers * kEach);
    // No thread of duties runs here, so the last newcomer has seen to it.
    int assigned = 0;
    server.controller().Read([&](const StateMachine& state) {
      for (const auto& [id, record] : state.nodes())
        assigned += record.node().assignment().has_stage() ? 1 : 0;
    });
    QCOMPARE(assigned, kCallers * kEach);
    server.Shutdown();
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::RegistrationsTest)
#include "registrations_test.moc"
