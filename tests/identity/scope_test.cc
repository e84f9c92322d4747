#include "cluster/identity/scope.h"

#include <QtTest>

#include "cluster/base/status.h"
#include "cluster/identity/role.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::identity {

class ScopeTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // The whole table, so that nothing is allowed by accident.
  void Allows_data() {
    QTest::addColumn<QString>("granted");
    QTest::addColumn<QString>("allowed");
    QTest::newRow("submit") << "submit"
                            << "submit";
    QTest::newRow("read-own") << "read-own"
                              << "read-own";
    QTest::newRow("read") << "read"
                          << "read-own,read";
    QTest::newRow("cancel-own") << "cancel-own"
                                << "cancel-own";
    QTest::newRow("operate") << "operate"
                             << "read-own,read,cancel-own,operate";
    QTest::newRow("admin") << "admin"
                           << "submit,read-own,read,cancel-own,operate,admin";
    QTest::newRow("two") << "submit,read"
                         << "submit,read-own,read";
  }
  void Allows() {
    QFETCH(QString, granted);
    QFETCH(QString, allowed);
    const auto set = ParseScopes(granted.toStdString());
    QVERIFY(set.ok());
    QStringList found;
    for (const char* word : {"submit", "read-own", "read", "cancel-own", "operate", "admin"})
      if (identity::Allows(*set, *ParseScope(word))) found << word;
    QCOMPARE(found.join(','), allowed);
  }

  void NothingGranted_AllowsNothing() { QCOMPARE(FormatScopes(WithImplied({})), std::string()); }

  void Parse_TakesAnyOrder_AndFormatHasOne() {
    QCOMPARE(FormatScopes(*ParseScopes("read,submit")), std::string("submit,read"));
    QCOMPARE(WordOf(Scope::kCancelOwn), std::string("cancel-own"));
    QCOMPARE(FormatRoles(*ParseRoles("proxy,nodemanager")), std::string("nodemanager,proxy"));
    QCOMPARE(WordOf(Role::kAgent), std::string("agent"));
  }

  void Parse_RefusesWhatIsNoScope() {
    for (const char* text : {"", ",", "submit,", ",submit", "Submit", "submit ", "submit;read",
                             "submit,submit", "all", "*", "read-own\n"}) {
      const auto scopes = ParseScopes(text);
      QCOMPARE(Reason(scopes.status()), std::string("BAD_SCOPE"));
    }
    QVERIFY(base::Message(ParseScopes("write").status()).find("cancel-own") != std::string::npos);
    for (const char* text : {"", "node", "proxy,proxy", "PROXY"})
      QCOMPARE(Reason(ParseRoles(text).status()), std::string("BAD_ROLE"));
  }
};

}  // namespace onepiece::identity

ONEPIECE_TEST(onepiece::identity::ScopeTest)
#include "scope_test.moc"
