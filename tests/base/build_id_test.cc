// Tests that a program knows its build.
#include "cluster/base/build_id.h"

#include <QRegularExpression>
#include <QtTest>

#include "tests/test_main.h"

namespace onepiece::base {

class BuildIdTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void BuildId_IsACommitOrAVersion() {
    const std::string_view id = BuildId();
    const QString text = QString::fromUtf8(id.data(), static_cast<int>(id.size()));
    const QRegularExpression known("^([0-9a-f]{12,40}(-dirty)?|[0-9]+\\.[0-9]+\\.[0-9]+)$");
    QVERIFY2(known.match(text).hasMatch(), qPrintable(text));
  }
};

}  // namespace onepiece::base

ONEPIECE_TEST(onepiece::base::BuildIdTest)
#include "build_id_test.moc"
