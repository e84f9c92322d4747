// Lets one program hold the test classes of a folder. Each ctest test runs one class in a process
// of its own.
#pragma once

#include <QCoreApplication>
#include <QtTest>

namespace onepiece::testing {

/// Runs a test class with Qt Test's own command line, and returns how many of its functions failed.
using RunTestClass = int (*)(int argc, char** argv);

/// Adds a class to the program. Its name is the stem of `file`: "ring_test" for
/// tests/ring/ring_test.cc.
class TestClass {
 public:
  TestClass(const char* file, RunTestClass run);
};

template <typename Application, typename Test>
int RunWith(int argc, char** argv) {
  // As QTEST_MAIN does: what must happen before there is an application.
  if constexpr (requires { Test::initMain(); }) Test::initMain();
  Application application(argc, argv);
  Test test;
  return QTest::qExec(&test, argc, argv);
}

}  // namespace onepiece::testing

#define ONEPIECE_TEST_JOIN_EXPANDED(name, number) name##number
#define ONEPIECE_TEST_JOIN(name, number) ONEPIECE_TEST_JOIN_EXPANDED(name, number)
/// Stands at the end of a test's file, before it includes its ".moc", where Qt has QTEST_MAIN.
#define ONEPIECE_TEST_IN(Application, Class)                                                \
  static const ::onepiece::testing::TestClass ONEPIECE_TEST_JOIN(test_class_, __COUNTER__)( \
      __FILE__, &::onepiece::testing::RunWith<Application, Class>);
#define ONEPIECE_TEST(Class) ONEPIECE_TEST_IN(QCoreApplication, Class)
/// For tests of widgets. The file includes <QApplication>.
#define ONEPIECE_WIDGET_TEST(Class) ONEPIECE_TEST_IN(QApplication, Class)
