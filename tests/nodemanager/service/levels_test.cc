// Tests what a controller leaves out of commands below the feature level that brought it. A program
// of that level would keep it as an unknown field, and come to another state.
#include <QtTest>

#include "nodemanager/service/controller.h"
#include "tests/nodemanager/service/leader_world.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

class LevelWorld : public LeaderWorld {
 public:
  explicit LevelWorld(std::uint32_t version) { Lead({}, version); }
  ~LevelWorld() {
    StopLog();
    Leave();
  }
  std::string Apply(const std::string& actor, const std::string& caller, bool async = false) {
    v1::Command command = WorkflowCommand(MakeWorkflow("w", {"a"}));
    command.set_request_id("r1");
    command.set_actor(actor);
    command.set_reason("because");
    command.set_caller(caller);
    command.set_caller_address("ipv4:127.0.0.1:1");
    if (!async) return Reason(Propose(command));
    std::promise<absl::Status> answer;
    controller().ProposeAsync(command,
                              [&](const auto& result) { answer.set_value(result.status()); });
    return Reason(answer.get_future().get());
  }
  v1::AuditEntry LastEntry() {
    v1::AuditEntry entry;
    controller().Read([&](const StateMachine& state) { entry = state.audit().back(); });
    return entry;
  }
};

}  // namespace

class LevelsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void BelowLevel4_NobodyIsNamed() {
    LevelWorld world(3);
    QCOMPARE(world.Apply("ann", "principal/ann"), std::string());
    QCOMPARE(world.LastEntry().caller(), std::string());
    // The commands are the same without their authors, so this is a retry.
    QCOMPARE(world.Apply("bob", "principal/bob"), std::string());
    QCOMPARE(world.Apply("bob", "principal/bob", true), std::string());
  }

  void Level4_HasActors() {
    LevelWorld world(4);
    QCOMPARE(world.Apply("ann", "principal/ann"), std::string());
    QCOMPARE(world.LastEntry().detail(), std::string("ann"));
    QCOMPARE(world.LastEntry().caller(), std::string());
    QCOMPARE(world.Apply("ann", "principal/bob", true), std::string());
    QCOMPARE(world.Apply("bob", "principal/bob", true), std::string("REQUEST_ID_REUSED"));
  }

  void Level5_HasCallers() {
    LevelWorld world(5);
    QCOMPARE(world.Apply("ann", "principal/ann"), std::string());
    QCOMPARE(world.LastEntry().caller(), std::string("principal/ann"));
    QCOMPARE(world.LastEntry().caller_address(), std::string("ipv4:127.0.0.1:1"));
    QCOMPARE(world.LastEntry().answer(), std::string("OK"));
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::LevelsTest)
#include "levels_test.moc"
