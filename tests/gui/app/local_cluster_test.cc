// A script stands in for the program `onepiece`.
#include "gui/app/local_cluster.h"

#include <QApplication>
#include <QLabel>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <memory>

#include "gui/app/dialogs.h"
#include "tests/test_main.h"

namespace onepiece::gui {

class LocalClusterTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    QVERIFY(qputenv("ONEPIECE_BIN_DIR", folder_->path().toUtf8()));
  }
  void cleanup() { folder_.reset(); }

  void Stop_ThatFails_LeavesTheClusterRunning() {
    Say(QStringLiteral("up"), QStringLiteral("exit 0"));
    Say(QStringLiteral("down"), QStringLiteral("echo it does not end; exit 1"));
    LocalCluster cluster(folder_->path());
    const ConnectionsDialog dialog({}, {}, cluster, nullptr);
    QSignalSpy failed(&cluster, &LocalCluster::Failed);
    cluster.Start();
    QTRY_COMPARE(cluster.state(), LocalCluster::State::kRunning);
    cluster.Stop();
    QCOMPARE(cluster.state(), LocalCluster::State::kStopping);
    QTRY_COMPARE(failed.size(), 1);
    QCOMPARE(failed.at(0).at(0).toString(), QStringLiteral("it does not end"));
    QCOMPARE(cluster.state(), LocalCluster::State::kRunning);
    QVERIFY(Shows(dialog, QStringLiteral("The local cluster did not end: it does not end")));
    Say(QStringLiteral("down"), QStringLiteral("exit 0"));
    cluster.Stop();
    QTRY_COMPARE(cluster.state(), LocalCluster::State::kStopped);
    QCOMPARE(failed.size(), 1);
  }

  void Stop_WhoseProgramIsGone_LeavesTheClusterRunning() {
    Say(QStringLiteral("up"), QStringLiteral("exit 0"));
    LocalCluster cluster(folder_->path());
    QSignalSpy failed(&cluster, &LocalCluster::Failed);
    cluster.Start();
    QTRY_COMPARE(cluster.state(), LocalCluster::State::kRunning);
    QVERIFY(QFile::remove(folder_->filePath(QStringLiteral("onepiece"))));
    cluster.Stop();
    QTRY_COMPARE(failed.size(), 1);
    QCOMPARE(cluster.state(), LocalCluster::State::kRunning);
  }

  void Start_ThatFails_LeavesItStopped() {
    Say(QStringLiteral("up"), QStringLiteral("echo no port is free; exit 1"));
    Say(QStringLiteral("down"), QStringLiteral("exit 0"));
    LocalCluster cluster(folder_->path());
    const ConnectionsDialog dialog({}, {}, cluster, nullptr);
    QSignalSpy failed(&cluster, &LocalCluster::Failed);
    cluster.Start();
    QTRY_COMPARE(failed.size(), 1);
    QCOMPARE(cluster.state(), LocalCluster::State::kStopped);
    QVERIFY(Shows(dialog, QStringLiteral("The local cluster did not start: no port is free")));
  }

 private:
  static bool Shows(const ConnectionsDialog& dialog, const QString& text) {
    return std::ranges::any_of(dialog.findChildren<QLabel*>(),
                               [&](const QLabel* label) { return label->text() == text; });
  }
  /// Lets the program do `what` when it is called with `verb`.
  void Say(const QString& verb, const QString& what) {
    Write(verb + QStringLiteral(".sh"), what);
    Write(QStringLiteral("onepiece"), QStringLiteral("#!/bin/sh\n. \"$(dirname \"$0\")/$1.sh\"\n"));
  }
  void Write(const QString& name, const QString& text) {
    QFile file(folder_->filePath(name));
    QVERIFY(file.open(QIODevice::WriteOnly) && file.write(text.toUtf8()) > 0);
    QVERIFY(file.setPermissions(QFileDevice::ReadOwner | QFileDevice::WriteOwner |
                                QFileDevice::ExeOwner));
  }

  std::unique_ptr<QTemporaryDir> folder_;
};

}  // namespace onepiece::gui

ONEPIECE_WIDGET_TEST(onepiece::gui::LocalClusterTest)
#include "local_cluster_test.moc"
