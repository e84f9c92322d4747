#include <QTcpServer>
#include <QTemporaryDir>
#include <QtTest>
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
    ServedNodeManager server(dir.path().toStdString(), {},
                             {.max_registrations = 2, .dial_limit = kLimit});
    // It takes connections and never answers, so whoever dials it waits.
    QTcpServer silent;
    QVERIFY(silent.listen(QHostAddress::LocalHost));
    v1::Node node = MakeNode("slow", v1::PROXY);
    node.set_address(absl::StrCat("127.0.0.1:", silent.serverPort()));
    std::vector<std::jthread> callers;
    for (int i = 0; i < 2; ++i) callers.emplace_back([&] { (void)server.Register(node); });
    QTRY_COMPARE_WITH_TIMEOUT(server.service().registrations(), 2, 20000);
    const absl::Status refused = server.Register(MakeNode("one-more", v1::PROXY)).status();
    QCOMPARE(Reason(refused), std::string("REGISTRATIONS_BUSY"));
    silent.close();
    server.Shutdown();
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::RegistrationsTest)
#include "registrations_test.moc"
