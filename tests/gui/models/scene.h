// Snapshots of a cluster that is as large and as odd as a test wants it, the same in every run: no
// clock, no chance.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::testing {

/// Instance i is "instance-I", counted from 1; its ring has its name. Workflow set "default",
/// application "t2v" of stages text_encoder, diffusion (five of eight instances), vae_decode.
struct SceneOptions {
  int nodes = 8;         ///< Instances. The last one of 8 and more is idle.
  int device_nodes = 8;  ///< So many of them say how their devices are, the others are on "cpu".
  int devices = 1;       ///< Of each.
  /// Every third device has no sm_active, no power limit and no temperature; every fourth says
  /// nothing at all.
  bool odd_devices = false;
  int rings = 8;  ///< Of the first instances, then of the databases.
  int jobs = 60;  ///< The newest 16 are under way, 4 of them wait.
  int databases = 2;
  int replicas = 3;
  int plans = 3;
  int audit = 12;
  int alerts = 5;
  /// Names and texts hold markup, control characters, right-to-left overrides, format strings,
  /// bytes that are no UTF-8, or are 10 kB long. Ids stay different.
  bool hostile = false;
  std::int64_t at_ms = 1'800'000'000'000;  ///< 2027-01-15 08:00:00 UTC.
};

/// One hostile text of each kind; `kind` may be any number.
std::string HostileText(int kind);

/// Threading  Thread-confined; snapshots are values.
class Scene {
 public:
  static constexpr std::int64_t kTickMs = 100;

  explicit Scene(SceneOptions options = {});
  [[nodiscard]] const std::shared_ptr<const gui::Snapshot>& snapshot() const { return snapshot_; }
  /// `ticks` later: loads and rings are others, each job under way is a step further, every second
  /// one ends and another one comes. What does not change is the same object, as in a Session.
  std::shared_ptr<const gui::Snapshot> Step(int ticks = 1);

 private:
  template <typename T>
  [[nodiscard]] gui::Part<T> Now(T value) const;
  [[nodiscard]] std::string Text(std::string_view plain, int kind) const;
  void MakeServices(v1::Cluster& cluster) const;
  [[nodiscard]] std::string InstanceId(int i) const;
  [[nodiscard]] v1::Node Instance(int i) const;
  void SetLoad(v1::Node& node, int i) const;
  void AddDevice(v1::NodeLoad& load, int i, int device) const;
  [[nodiscard]] v1::Cluster MakeCluster() const;
  [[nodiscard]] v1::Elasticity MakeElasticity() const;
  [[nodiscard]] v1::Plan MakePlan(int i) const;
  [[nodiscard]] gui::Rings MakeRings() const;
  [[nodiscard]] v1::Job MakeJob(int number, bool active) const;
  [[nodiscard]] gui::JobList NextJobs() const;
  [[nodiscard]] gui::Databases MakeDatabases() const;
  [[nodiscard]] gui::Replicas MakeReplicas() const;
  [[nodiscard]] gui::Audit MakeAudit() const;
  [[nodiscard]] gui::Alerts MakeAlerts() const;

  SceneOptions options_;
  std::int64_t tick_ = 0;
  std::shared_ptr<const gui::Snapshot> snapshot_;
};

/// A connection as it should be.
gui::LinkStatus LiveLink(std::int64_t now_ms = SceneOptions().at_ms);

}  // namespace onepiece::testing
