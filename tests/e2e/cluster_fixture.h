// A real embedded cluster in a temporary directory, driven through the `onepiece` command, and the
// base of test classes whose functions share a cluster.
#pragma once

#include <QtTest>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/eventually.h"
#include "tests/program.h"

namespace onepiece::e2e {

using nlohmann::json;
using testing::Eventually;
using testing::Outcome;

/// Returns the hash of a job's frames, as `submit`, `get` and `generate` print it, or an empty text
/// if there is none.
std::string FramesHash(const json& job);

/// Threading: thread-confined.
class ClusterUnderTest {
 public:
  [[nodiscard]] std::string Path(const std::string& name) const {
    return temp_.path().toStdString() + "/" + name;
  }

  /// Starts the cluster with `onepiece up ARGUMENTS`. Returns false if that failed; a warning has
  /// the output of the command and the services.
  [[nodiscard]] bool Up(const QStringList& arguments = {}) const;
  /// Calls Up with this configuration. Its paths are relative to Path("").
  [[nodiscard]] bool UpWith(const std::string& cluster_yaml) const;

  /// Calls from this process go out as this cluster's admin from now on. Up() does it too.
  [[nodiscard]] bool ShowIdentity() const;

  /// Runs `onepiece ARGUMENTS --data-dir …` to its end.
  [[nodiscard]] Outcome Run(const QStringList& arguments, int timeout_s = 180) const;

  /// Submits a job. Returns its UID, or an empty text if it was refused.
  [[nodiscard]] std::string Submit(const QStringList& arguments) const;
  /// Follows a job to its end and returns what `watch` printed.
  [[nodiscard]] json Watch(const std::string& uid) const;
  /// Returns the output of `get`, or an empty object if there is none.
  [[nodiscard]] json Get(const std::string& uid) const;

  [[nodiscard]] json Status() const { return Run({"status", "--json"}).Document(); }
  [[nodiscard]] bool EveryProcessReady() const;
  /// Returns host:port of a proxy, or an empty text if there is none.
  [[nodiscard]] std::string ProxyAddress() const;
  /// Returns what `status` says about a process, or an empty object if there is none of that name.
  [[nodiscard]] json Process(const std::string& node) const;
  [[nodiscard]] int PidOf(const std::string& node) const { return Process(node).value("pid", 0); }
  /// Returns what `status` says about every instance.
  [[nodiscard]] std::vector<json> Instances() const;
  /// Returns a READY instance that serves this stage of the application, or an empty object if
  /// there is none.
  [[nodiscard]] json Serving(const std::string& stage, const std::string& app) const;

  /// Ends the cluster with `onepiece down`. Returns false if that failed, or if processes or shared
  /// memory segments of the cluster are left; a warning names them.
  [[nodiscard]] bool Down() const;

  /// Returns the services' logs, for a failed test's report.
  [[nodiscard]] std::string Logs() const;

 private:
  QTemporaryDir temp_;
};

/// A derived class starts `cluster_` in its initTestCase(). When a test function fails, the
/// services' logs follow in its report. At the end the cluster goes down, and no process and no
/// shared memory of it may be left.
class ClusterFixture : public QObject {
  Q_OBJECT
 protected:
  ClusterUnderTest cluster_;

 private Q_SLOTS:
  void cleanup() const {
    if (QTest::currentTestFailed()) qWarning("%s", cluster_.Logs().c_str());
  }
  void cleanupTestCase() const { QVERIFY(cluster_.Down()); }
};

}  // namespace onepiece::e2e
