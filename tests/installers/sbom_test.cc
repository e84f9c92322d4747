// The bill of materials: SPDX that hangs together, with the versions that this machine has.
#include <QtTest>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece {
namespace {

using nlohmann::json;
using testing::Outcome;

Outcome Sbom(const QStringList& arguments) {
  return testing::RunProgram(ONEPIECE_SOURCE_DIR "/installers/sbom", arguments, 200);
}

}  // namespace

class SbomTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Bill_NamesThePackagesThatTheProgramsLoad() {
    const Outcome made = Sbom({"--build", ONEPIECE_BINARY_DIR});
    QVERIFY2(made.exit_code == 0, made.err.c_str());
    const json bill = made.Document();
    QVERIFY(bill.is_object());
    QCOMPARE(bill["spdxVersion"], json("SPDX-2.3"));
    std::set<std::string> ids = {"SPDXRef-DOCUMENT"};
    std::set<std::string> names;
    std::string grpc;
    for (const json& package : bill["packages"]) {
      QVERIFY2(ids.insert(package["SPDXID"]).second, package.dump().c_str());
      const std::string name = package["name"];
      names.insert(name);
      if (name.starts_with("libgrpc++")) grpc = package["versionInfo"];
    }
    for (const json& relation : bill["relationships"]) {
      QVERIFY2(ids.contains(relation["spdxElementId"]), relation.dump().c_str());
      QVERIFY2(ids.contains(relation["relatedSpdxElement"]), relation.dump().c_str());
    }
    // Each package but the document's own is related.
    QCOMPARE(bill["relationships"].size(), bill["packages"].size());
    for (const char* name : {"onepiece", "libc6", "libssl3", "libsqlite3-0"})
      QVERIFY2(names.contains(name), name);
    // Only tests and benchmarks load it.
    QVERIFY(!names.contains("libqt6test6"));
    const Outcome known =
        testing::RunProgram("/usr/bin/dpkg-query", {"-W", "-f", "${Version}", "libgrpc++1.51"});
    QCOMPARE(grpc, known.out);
  }

  void WrongArguments_SayWhatToDo() {
    const Outcome unknown = Sbom({"--bild", "x"});
    QCOMPARE(unknown.exit_code, 2);
    QVERIFY(unknown.err.find("--help") != std::string::npos);
    const Outcome empty = Sbom({"--build", "/nonexistent"});
    QCOMPARE(empty.exit_code, 1);
    QVERIFY(empty.err.find("build them first") != std::string::npos);
  }
};

}  // namespace onepiece

ONEPIECE_TEST(onepiece::SbomTest)
#include "sbom_test.moc"
