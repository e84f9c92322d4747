// Tests `onepiece context` from outside.
#include <sys/stat.h>

#include <QtTest>

#include "cluster/base/clock.h"
#include "cluster/identity/authority.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/secret_files.h"
#include "cluster/identity/token.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::cli {

class ContextTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    temp_ = std::make_unique<QTemporaryDir>();
    const base::WallTime now = base::SystemClock().WallNow();
    const auto authority = identity::Authority::Create("pirates", now);
    const identity::PrincipalSubject ann{
        .cluster = "pirates", .name = "ann", .tenant = "films", .scopes = {identity::Scope::kRead}};
    QVERIFY(identity::MakeIdentity(Path("ann").toStdString(), "ann", ann, *authority, now).ok());
  }

  void Add_List_Use_Show_Remove() {
    const auto added = Run({"add", "films", "--nodemanager", "nm-1:7000,nm-2:7000", "--identity",
                            Path("ann"), "--json"});
    QVERIFY2(added.exit_code == 0, added.err.c_str());
    QCOMPARE(added.Document().value("current", ""), std::string("films"));
    QVERIFY(identity::WriteSecretFile(Path("ann/token").toStdString(), Token()).ok());
    QCOMPARE(Run({"add", "ci", "--nodemanager", "nm-1:7000", "--ca", Path("ann/ca.pem"),
                  "--token-file", Path("ann/token")})
                 .exit_code,
             0);
    const auto listed = Run({"list", "--json"}).Document();
    QCOMPARE(listed.value("file", ""), Path("c/contexts.yaml").toStdString());
    QCOMPARE(listed.value("current", ""), std::string("films"));
    QCOMPARE(listed["contexts"].size(), std::size_t{2});
    QCOMPARE(listed["contexts"][0].value("token_file", ""), Path("ann/token").toStdString());
    QVERIFY(listed["contexts"][0]["identity"].is_null());
    QCOMPARE(listed["contexts"][1].value("identity_name", ""), std::string("ann"));
    QCOMPARE(listed["contexts"][1]["nodemanagers"].size(), std::size_t{2});
    QVERIFY(Run({"list"}).Says("*  films"));

    QVERIFY(Run({"show"}).Says("principal ann (read) of tenant films"));
    QCOMPARE(Run({"use", "ci"}).exit_code, 0);
    QCOMPARE(Run({"show", "--json"}).Document().value("name", ""), std::string("ci"));
    QCOMPARE(Run({"remove", "ci"}).exit_code, 0);
    const auto none = Run({"show", "--json"});
    QCOMPARE(none.exit_code, 3);
    QCOMPARE(none.ErrorReason(), std::string("NO_CONTEXT"));
    QVERIFY(none.Says("films"));
  }

  void WhatNamesNothing_Is3() {
    for (const char* verb : {"use", "show", "remove"}) {
      const auto unknown = Run({verb, "clips", "--json"});
      QCOMPARE(unknown.exit_code, 3);
      QCOMPARE(unknown.ErrorReason(), std::string("CONTEXT_UNKNOWN"));
      QVERIFY2(unknown.Says("there is no context 'clips'"), unknown.err.c_str());
    }
    const auto empty = Run({"add", "a", "--nodemanager", "nm:1", "--identity", Path("none")});
    QCOMPARE(empty.exit_code, 3);
    QVERIFY(!QFile::exists(Path("c/contexts.yaml")));
  }

  void Add_WrongArguments_Are2() {
    for (const QStringList& arguments :
         {QStringList{"add", "a", "--nodemanager", "nm:1"},
          {"add", "a", "--identity", Path("ann")},
          {"add", "a", "--nodemanager", "nm", "--identity", Path("ann")},
          {"add", "a b", "--nodemanager", "nm:1", "--identity", Path("ann")},
          {"add", "a", "--nodemanager", "nm:1", "--ca", Path("ann/ca.pem")},
          {"add", "a", "--nodemanager", "nm:1", "--identity", Path("ann"), "--ca", "x"},
          {"add"},
          {}}) {
      const auto wrong = Run(arguments);
      QVERIFY2(wrong.exit_code == 2, qPrintable(arguments.join(' ')));
    }
    QVERIFY(!QFile::exists(Path("c/contexts.yaml")));
  }

  void Add_Twice_IsRefused() {
    const QStringList add = {"add", "a", "--nodemanager", "nm:1", "--identity", Path("ann")};
    QCOMPARE(Run(add).exit_code, 0);
    const auto again = Run(add + QStringList{"--json"});
    QCOMPARE(again.exit_code, 4);
    QCOMPARE(again.ErrorReason(), std::string("CONTEXT_EXISTS"));
  }

  void Add_KeepsATokenOfTheInput() {
    QProcess process;
    process.setProcessEnvironment(Environment());
    process.start(ONEPIECE_BINARY_DIR "/bin/onepiece",
                  {"context", "add", "ci", "--nodemanager", "nm:1", "--ca", Path("ann/ca.pem"),
                   "--token-file", "-"});
    const std::string token = Token();
    process.write((token + "\n").c_str());
    process.closeWriteChannel();
    QVERIFY(process.waitForFinished());
    QVERIFY2(process.exitCode() == 0, process.readAllStandardError().constData());
    const auto kept = identity::ReadSecretFile(Path("c/ci.token").toStdString());
    QVERIFY(kept.ok());
    QCOMPARE(*kept, token + "\n");
    QVERIFY(!Run({"list"}).Says(token));
  }

  void WideFile_IsRefused_WithTheCommandThatMendsIt() {
    QCOMPARE(Run({"add", "a", "--nodemanager", "nm:1", "--identity", Path("ann")}).exit_code, 0);
    const std::string file = Path("c/contexts.yaml").toStdString();
    QCOMPARE(chmod(file.c_str(), 0644), 0);
    const auto wide = Run({"list"});
    QCOMPARE(wide.exit_code, 4);
    QVERIFY2(wide.Says("chmod 600 " + file), wide.err.c_str());
  }

 private:
  static std::string Token() { return identity::BearerToken::Generate().Format(); }
  [[nodiscard]] QString Path(const QString& name) const { return temp_->filePath(name); }
  [[nodiscard]] QProcessEnvironment Environment() const {
    QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
    environment.insert("ONEPIECE_CONTEXTS", Path("c/contexts.yaml"));
    return environment;
  }
  [[nodiscard]] testing::Outcome Run(const QStringList& arguments) const {
    return testing::RunProgram(ONEPIECE_BINARY_DIR "/bin/onepiece",
                               QStringList{"context"} + arguments, 30,
                               {{"ONEPIECE_CONTEXTS", Path("c/contexts.yaml")}});
  }

  std::unique_ptr<QTemporaryDir> temp_;
};

}  // namespace onepiece::cli

ONEPIECE_TEST(onepiece::cli::ContextTest)
#include "context_test.moc"
