// Tests that proto/ keeps what the last release promised (docs/versions.md). At a release,
//   ONEPIECE_UPDATE_GOLDENS=1 build/release/tests/proto_tests released_api_test
// writes the list of what is promised from then on.
#include <QFile>
#include <QTemporaryDir>
#include <QtTest>

#include "tests/proto/api_list.h"
#include "tests/test_main.h"

namespace onepiece {
namespace {

constexpr char kList[] = ONEPIECE_SOURCE_DIR "/tests/proto/released_api.txt";

constexpr char kBase[] = R"(
syntax = "proto3";
package p;
import "google/protobuf/empty.proto";
message M {
  int32 a = 1;
  repeated string b = 2;
  map<string, M> c = 3;
  optional int64 d = 4;
  oneof e { M f = 5; google.protobuf.Empty g = 6; }
  enum E { ZERO = 0; ONE = 1; }
  E h = 7;
}
service S { rpc Ask(M) returns (stream M); rpc Tell(M) returns (google.protobuf.Empty); }
)";

QStringList Lines(const QString& text) {
  const QTemporaryDir folder;
  QFile file(folder.filePath("p.proto"));
  if (!file.open(QIODevice::WriteOnly)) qFatal("p.proto cannot be written");
  file.write(text.toUtf8());
  file.close();
  QString errors;
  const QStringList lines = testing::ListApi(folder.path(), errors);
  if (!errors.isEmpty()) qFatal("%s", qPrintable(errors));
  return lines;
}

}  // namespace

class ReleasedApiTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Protos_KeepWhatWasReleased() {
    QString errors;
    const QStringList now = testing::ListApi(ONEPIECE_SOURCE_DIR "/proto", errors);
    QVERIFY2(errors.isEmpty(), qPrintable(errors));
    QVERIFY(now.size() > 500);
    QFile list(kList);
    if (qEnvironmentVariableIntValue("ONEPIECE_UPDATE_GOLDENS") == 1) {
      QVERIFY(list.open(QIODevice::WriteOnly | QIODevice::Truncate));
      list.write((now.join('\n') + '\n').toUtf8());
      return;
    }
    QVERIFY(list.open(QIODevice::ReadOnly));
    const QStringList released = QString::fromUtf8(list.readAll()).split('\n', Qt::SkipEmptyParts);
    QVERIFY(released.size() > 500);
    const QStringList broken = testing::BrokenPromises(released, now);
    QVERIFY2(broken.isEmpty(), qPrintable("programs of the last release no longer understand:\n" +
                                          broken.join('\n')));
  }

  void Additions_BreakNothing() {
    QString more = kBase;
    more.replace("int32 a", "bool added = 9; reserved 10; int32 a");
    more.replace("rpc Ask", "rpc Added(M) returns (M); rpc Ask");
    more.replace("ONE = 1", "TWO = 2; ONE = 1");
    more += "message New { int32 a = 1; }";
    QVERIFY(testing::BrokenPromises(Lines(kBase), Lines(more)).isEmpty());
    QCOMPARE(Lines(more).size(), Lines(kBase).size() + 5);
  }

  void Change_IsFound_data() {
    QTest::addColumn<QString>("before");
    QTest::addColumn<QString>("after");
    QTest::addColumn<QString>("found");
    const auto row = [](const char* name, const char* before, const char* after,
                        const char* found) { QTest::newRow(name) << before << after << found; };
    row("removed field", "int32 a = 1;", "", "field p.M.a = 1 int32: removed");
    row("renumbered", "int32 a = 1", "int32 a = 9",
        "field p.M.a = 1 int32: now \"field p.M.a = 9 int32\"");
    row("retyped", "int32 a", "sint32 a", "field p.M.a = 1 int32: now \"field p.M.a = 1 sint32\"");
    row("renamed", "int32 a", "int32 z", "field p.M.a = 1 int32: removed");
    row("no longer repeated", "repeated string b", "string b",
        "field p.M.b = 2 repeated string: now \"field p.M.b = 2 string\"");
    row("no longer optional", "optional int64 d", "int64 d",
        "field p.M.d = 4 optional int64: now \"field p.M.d = 4 int64\"");
    row("map", "map<string, M>", "map<string, int32>",
        "field p.M.c = 3 map<string, p.M>: now \"field p.M.c = 3 map<string, int32>\"");
    row("enum value", "ONE = 1", "ONE = 2", "value p.M.E.ONE = 1: now \"value p.M.E.ONE = 2\"");
    row("removed call", "rpc Tell(M) returns (google.protobuf.Empty);", "",
        "rpc p.S.Tell p.M google.protobuf.Empty: removed");
    row("no longer a stream", "(stream M)", "(M)",
        "rpc p.S.Ask p.M stream p.M: now \"rpc p.S.Ask p.M p.M\"");
  }
  void Change_IsFound() {
    QFETCH(QString, before);
    QFETCH(QString, after);
    QFETCH(QString, found);
    const QString changed = QString(kBase).replace(before, after);
    QCOMPARE(testing::BrokenPromises(Lines(kBase), Lines(changed)), QStringList{found});
  }
};

}  // namespace onepiece

ONEPIECE_TEST(onepiece::ReleasedApiTest)
#include "released_api_test.moc"
