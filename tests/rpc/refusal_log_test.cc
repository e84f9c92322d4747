// The door's refusals in the log: bounded, and nobody writes lines of their own into it.
#include "cluster/rpc/refusal_log.h"

#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::rpc {

class RefusalLogTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void ARefusal_IsALineWithWhoWhatAndWhy() {
    RefusalLog log;
    QCOMPARE(log.Line("principal/ci", "/onepiece.v1.NodeManagerService/EndNode", "MISSING_SCOPE",
                      clock_.Now()),
             std::optional<std::string>("op=refuse caller=principal/ci "
                                        "method=/onepiece.v1.NodeManagerService/EndNode "
                                        "reason=MISSING_SCOPE"));
  }

  void AFlood_IsCutAndCounted() {
    RefusalLog log;
    int lines = 0;
    for (int i = 0; i < 100'000; ++i) lines += Refuse(log).has_value();
    QCOMPARE(lines, static_cast<int>(RefusalLog::kBurst));
    clock_.Advance(std::chrono::seconds(1));
    QVERIFY(Refuse(log)->ends_with(" left_out=" + std::to_string(100'000 - lines)));
    QVERIFY(Refuse(log)->ends_with("reason=NO_CREDENTIALS"));
    QVERIFY(!Refuse(log).has_value());
  }

  void ACaller_WritesNoLineOfItsOwn() {
    RefusalLog log;
    const std::string line = *log.Line(
        "nobody", "/x\n{\"level\":\"error\"} caller=principal/admin" + std::string(9999, 'x'),
        "METHOD_UNKNOWN", clock_.Now());
    QCOMPARE(line.find('\n'), std::string::npos);
    QCOMPARE(line.find('"'), std::string::npos);
    QCOMPARE(line.find("caller=principal/admin"), std::string::npos);
    QVERIFY(line.size() < 2 * RefusalLog::kMaxText);
  }

 private:
  std::optional<std::string> Refuse(RefusalLog& log) {
    return log.Line("nobody", "/x", "NO_CREDENTIALS", clock_.Now());
  }
  base::ManualClock clock_;
};

}  // namespace onepiece::rpc

ONEPIECE_TEST(onepiece::rpc::RefusalLogTest)
#include "refusal_log_test.moc"
