#include "cluster/contexts/contexts.h"

#include <sys/stat.h>

#include <QTemporaryDir>
#include <QtTest>
#include <fstream>

#include "cluster/base/status.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::contexts {
namespace {

ClusterContext Films() {
  return {.name = "films",
          .nodemanagers = {"nm-1.example.org:7000", "[::1]:7001"},
          .credentials = {.folder = "/home/ann/my films", .name = "ann"}};
}

ClusterContext Ci() {
  return {.name = "ci",
          .nodemanagers = {"10.0.0.1:7000"},
          .credentials = {.authorities = "/ci/ca.pem", .token_file = "/ci/token"}};
}

}  // namespace

class ContextsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    path_ = temp_->filePath("onepiece/contexts.yaml").toStdString();
  }
  void cleanup() {
    for (const char* name : {"ONEPIECE_CONTEXTS", "XDG_CONFIG_HOME"}) qunsetenv(name);
  }

  void Load_WithoutAFile_GivesNone() {
    const auto loaded = Load(path_);
    QVERIFY(loaded.ok());
    QVERIFY(loaded->all().empty());
    QCOMPARE(Reason(loaded->Find("").status()), std::string("NO_CONTEXT"));
  }

  void Load_GivesWhatWasSaved() {
    Contexts contexts;
    QVERIFY(contexts.Add(Films()).ok());
    QVERIFY(contexts.Add(Ci()).ok());
    QVERIFY(Save(path_, contexts).ok());
    const auto loaded = Load(path_);
    QVERIFY2(loaded.ok(), loaded.status().ToString().c_str());
    QCOMPARE(loaded->current(), std::string("films"));
    QVERIFY(loaded->all() == (std::vector<ClusterContext>{Ci(), Films()}));
    struct stat about {};
    QCOMPARE(stat(path_.c_str(), &about), 0);
    QCOMPARE(about.st_mode & 07777, mode_t{0600});
  }

  void Load_RefusesWideModes() {
    QVERIFY(Save(path_, Contexts()).ok());
    QCOMPARE(chmod(path_.c_str(), 0644), 0);
    const absl::Status wide = Load(path_).status();
    QCOMPARE(Reason(wide), std::string("MODE_TOO_WIDE"));
    QVERIFY(base::Message(wide).find("chmod 600 ") != std::string::npos);
    QCOMPARE(chmod(path_.c_str(), 0600), 0);
    const std::string folder = temp_->filePath("onepiece").toStdString();
    QCOMPARE(chmod(folder.c_str(), 0755), 0);
    QCOMPARE(Reason(Load(path_).status()), std::string("MODE_TOO_WIDE"));
    QCOMPARE(Reason(Save(path_, Contexts())), std::string("MODE_TOO_WIDE"));
  }

  void Add_FirstOne_IsCurrent_AndNoneIsReplaced() {
    Contexts contexts;
    QVERIFY(contexts.Add(Films()).ok());
    QCOMPARE(contexts.current(), std::string("films"));
    QVERIFY(contexts.Add(Ci()).ok());
    QCOMPARE(contexts.current(), std::string("films"));
    QCOMPARE(Reason(contexts.Add(Films())), std::string("CONTEXT_EXISTS"));
    QCOMPARE(contexts.all().size(), std::size_t{2});
  }

  void Add_MakesPathsAbsolute() {
    Contexts contexts;
    ClusterContext films = Films();
    films.credentials.folder = "keys/../films";
    QVERIFY(contexts.Add(films).ok());
    QCOMPARE(QString::fromStdString(contexts.all()[0].credentials.folder),
             QDir::currentPath() + "/films");
  }

  void Add_WrongParts_AreNamed_data() {
    QTest::addColumn<QString>("part");
    QTest::newRow("name") << "name";
    QTest::newRow("no address") << "nodemanagers";
    QTest::newRow("no port") << "nodemanagers ";
    QTest::newRow("no credentials") << "identity";
    QTest::newRow("both") << "identity ";
    QTest::newRow("no token") << "token_file";
    QTest::newRow("no ca") << "ca";
  }
  void Add_WrongParts_AreNamed() {
    QFETCH(QString, part);
    ClusterContext wrong = part == "ca" || part == "token_file" ? Ci() : Films();
    if (part == "name") wrong.name = "my films";
    if (part == "nodemanagers") wrong.nodemanagers.clear();
    if (part == "nodemanagers ") wrong.nodemanagers = {"nm-1"};
    if (part == "identity") wrong.credentials = {};
    if (part == "identity ") wrong.credentials.token_file = "/t";
    if (part == "token_file") wrong.credentials.token_file.clear();
    if (part == "ca") wrong.credentials.authorities.clear();
    Contexts contexts;
    const absl::Status refused = contexts.Add(wrong);
    QCOMPARE(Reason(refused), std::string("BAD_CONTEXT"));
    QCOMPARE(base::GetReason(refused).metadata["field"], part.trimmed().toStdString());
    QVERIFY(contexts.all().empty());
  }

  void Use_And_Remove_KnowWhatThereIs() {
    Contexts contexts;
    QVERIFY(contexts.Add(Films()).ok());
    QVERIFY(contexts.Add(Ci()).ok());
    QVERIFY(contexts.Use("ci").ok());
    QVERIFY(*contexts.Find("") == Ci());
    QVERIFY(*contexts.Find("films") == Films());
    const absl::Status unknown = contexts.Use("clips");
    QVERIFY(absl::IsNotFound(unknown));
    QCOMPARE(Reason(unknown), std::string("CONTEXT_UNKNOWN"));
    QVERIFY(base::Message(unknown).find("ci, films") != std::string::npos);
    QCOMPARE(contexts.current(), std::string("ci"));
    QVERIFY(contexts.Remove("ci").ok());
    QVERIFY(contexts.current().empty());
    QCOMPARE(Reason(contexts.Find("").status()), std::string("NO_CONTEXT"));
    QCOMPARE(Reason(contexts.Remove("ci")), std::string("CONTEXT_UNKNOWN"));
    QCOMPARE(contexts.all().size(), std::size_t{1});
  }

  void FromYaml_SaysWhereItIsWrong_data() {
    QTest::addColumn<QString>("text");
    QTest::addColumn<QString>("says");
    const QString good = "contexts:\n  - {name: a, nodemanagers: ['n:1'], identity: /i}\n";
    QTest::newRow("no mapping") << "[]"
                                << "f:1:1: keys and values";
    QTest::newRow("unknown key") << "curent: a\n" + good << "f:1:1: unknown key 'curent'";
    QTest::newRow("current") << "current: b\n" + good << "f:1:10: there is no context 'b'";
    QTest::newRow("twice") << good + good.mid(10) << "f:3:5: there is a context 'a' already";
    QTest::newRow("inner key") << "contexts:\n  - {name: a, key: b}\n"
                               << "f:2:15: unknown key 'key'";
    QTest::newRow("no list") << "contexts: {a: b}\n"
                             << "f:1:11: a list";
    QTest::newRow("no text") << "contexts:\n  - {name: []}\n"
                             << "f:2:12: a text";
    QTest::newRow("address") << "contexts:\n  - {name: a, nodemanagers: [b], identity: /i}\n"
                             << "f:2:5: nodemanagers: 'b' is not HOST:PORT";
    QTest::newRow("cut") << "contexts: ["
                         << "f:";
  }
  void FromYaml_SaysWhereItIsWrong() {
    QFETCH(QString, text);
    QFETCH(QString, says);
    const absl::Status wrong = Contexts::FromYaml(text.toStdString(), "f").status();
    QCOMPARE(Reason(wrong), std::string("BAD_CONFIG"));
    QVERIFY2(base::Message(wrong).starts_with(says.toStdString()), wrong.ToString().c_str());
  }

  void FromYaml_WithoutCurrent_ChoosesNone() {
    const auto contexts =
        Contexts::FromYaml("contexts: [{name: a, nodemanagers: ['n:1'], identity: /i}]", "f");
    QVERIFY2(contexts.ok(), contexts.status().ToString().c_str());
    QVERIFY(contexts->current().empty());
    QVERIFY(Contexts::FromYaml("", "f").ok());
  }

  void DefaultPath_FollowsTheEnvironment() {
    qputenv("HOME", "/home/ann");
    QCOMPARE(DefaultPath(), std::string("/home/ann/.config/onepiece/contexts.yaml"));
    qputenv("XDG_CONFIG_HOME", "/config");
    QCOMPARE(DefaultPath(), std::string("/config/onepiece/contexts.yaml"));
    qputenv("ONEPIECE_CONTEXTS", "/tmp/c.yaml");
    QCOMPARE(DefaultPath(), std::string("/tmp/c.yaml"));
  }

 private:
  std::unique_ptr<QTemporaryDir> temp_;
  std::string path_;
};

}  // namespace onepiece::contexts

ONEPIECE_TEST(onepiece::contexts::ContextsTest)
#include "contexts_test.moc"
