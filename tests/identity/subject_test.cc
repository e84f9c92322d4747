#include "cluster/identity/subject.h"

#include <QtTest>

#include "tests/identity/sample.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::identity {

class SubjectTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Format_WritesTheUri() {
    QCOMPARE(*FormatSubject(testing::Node("pirates", {Role::kProxy, Role::kNodeManager})),
             std::string("onepiece://pirates/node/proxy-1?role=nodemanager&role=proxy"));
    QCOMPARE(
        *FormatSubject(testing::Principal()),
        std::string("onepiece://pirates/principal/ci?tenant=films&scope=submit&scope=read-own"));
  }

  void Parse_GivesWhatWasFormatted() {
    for (const Subject& subject :
         {testing::Node(), testing::Principal(), testing::Node("A-b_9", {Role::kAgent}),
          testing::Principal("p", {Scope::kAdmin})}) {
      const auto parsed = ParseSubject(*FormatSubject(subject));
      QVERIFY(parsed.ok());
      QVERIFY(*parsed == subject);
    }
    // The longest there is.
    const PrincipalSubject long_one{.cluster = std::string(64, 'c'),
                                    .name = std::string(128, 'n'),
                                    .tenant = std::string(64, 't'),
                                    .scopes = WithImplied({Scope::kAdmin})};
    QVERIFY(*ParseSubject(*FormatSubject(long_one)) == Subject(long_one));
  }

  void Parse_RefusesEveryOtherWayToWriteIt_data() {
    QTest::addColumn<QString>("uri");
    const auto row = [](const char* uri) { QTest::newRow(uri) << uri; };
    for (const char* uri : {"",
                            "onepiece://",
                            "onepiece:///node/n?role=proxy",
                            "onepiece://c",
                            "onepiece://c/node/n",
                            "onepiece://c/node/n?",
                            "onepiece://c/node/?role=proxy",
                            "onepiece://c/node/n?role=",
                            "onepiece://c/node/n?role=king",
                            "onepiece://c/node/n?role=proxy&role=proxy",
                            "onepiece://c/node/n?role=proxy&role=nodemanager",
                            "onepiece://c/node/n?role=proxy&",
                            "onepiece://c/node/n?role=proxy&x=y",
                            "onepiece://c/node/n?role=proxy#x",
                            "onepiece://c/node/n?Role=proxy",
                            "ONEPIECE://c/node/n?role=proxy",
                            "https://c/node/n?role=proxy",
                            " onepiece://c/node/n?role=proxy",
                            "onepiece://c/node/n?role=proxy ",
                            "onepiece://c/node/n%41?role=proxy",
                            "onepiece://c/node/n/m?role=proxy",
                            "onepiece://c/node/..?role=proxy",
                            "onepiece://c/node/.?role=proxy",
                            "onepiece://c/nodes/n?role=proxy",
                            "onepiece://u@c/node/n?role=proxy",
                            "onepiece://c:1/node/n?role=proxy",
                            "onepiece://c.d/node/n?role=proxy",
                            "onepiece://c/principal/p?scope=read",
                            "onepiece://c/principal/p?tenant=t",
                            "onepiece://c/principal/p?tenant=t&",
                            "onepiece://c/principal/p?tenant=&scope=read",
                            "onepiece://c/principal/p?tenant=t&scope=",
                            "onepiece://c/principal/p?tenant=t&tenant=u&scope=read",
                            "onepiece://c/principal/p?scope=read&tenant=t",
                            "onepiece://c/principal/p?tenant=t&scope=read&scope=submit",
                            "onepiece://c/principal/p?tenant=t&scope=submit,read",
                            "onepiece://c/principal/a b?tenant=t&scope=read"}) {
      row(uri);
    }
    row("onepiece://c/node/\xc3\xa9?role=proxy");
  }
  void Parse_RefusesEveryOtherWayToWriteIt() {
    QFETCH(QString, uri);
    const std::string reason = Reason(ParseSubject(uri.toStdString()).status());
    QVERIFY2(reason == "BAD_SUBJECT" || reason == "BAD_ROLE" || reason == "BAD_SCOPE",
             reason.c_str());
  }

  void Parse_BoundsEveryPart() {
    const std::string nul("onepiece://c/node/n\0?role=proxy", 31);
    QCOMPARE(Reason(ParseSubject(nul).status()), std::string("BAD_SUBJECT"));
    const auto node = [](std::size_t cluster, std::size_t id) {
      return "onepiece://" + std::string(cluster, 'c') + "/node/" + std::string(id, 'n') +
             "?role=proxy";
    };
    QVERIFY(ParseSubject(node(64, 128)).ok());
    QVERIFY(!ParseSubject(node(65, 128)).ok());
    QVERIFY(!ParseSubject(node(64, 129)).ok());
    QVERIFY(!ParseSubject(node(64, kMaxSubjectBytes)).ok());
    const std::string principal = "onepiece://c/principal/p@q.r?tenant=";
    QVERIFY(ParseSubject(principal + std::string(64, 't') + "&scope=read").ok());
    QVERIFY(!ParseSubject(principal + std::string(65, 't') + "&scope=read").ok());
  }

  void Format_RefusesWhatParseWouldRefuse() {
    NodeSubject node{.cluster = "c", .id = "n", .roles = {}};
    QCOMPARE(Reason(FormatSubject(node).status()), std::string("BAD_SUBJECT"));
    node.roles = {Role::kProxy};
    node.id = "n?role=nodemanager";
    QCOMPARE(Reason(FormatSubject(node).status()), std::string("BAD_SUBJECT"));
    PrincipalSubject principal{.cluster = "c", .name = "p", .tenant = "t", .scopes = {}};
    QCOMPARE(Reason(FormatSubject(principal).status()), std::string("BAD_SUBJECT"));
    principal.scopes = {Scope::kRead};
    principal.tenant = "t&scope=admin";
    QCOMPARE(Reason(FormatSubject(principal).status()), std::string("BAD_SUBJECT"));
  }

  void Describe_NamesIt() {
    QCOMPARE(Describe(testing::Node()), std::string("node proxy-1 (proxy) of cluster pirates"));
    QCOMPARE(Describe(testing::Principal()),
             std::string("principal ci (submit,read-own) of tenant films in cluster pirates"));
  }
};

}  // namespace onepiece::identity

ONEPIECE_TEST(onepiece::identity::SubjectTest)
#include "subject_test.moc"
