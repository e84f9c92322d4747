// Makes snapshots of a cluster that is as large and as odd as a test wants. They are the same in
// every run: nothing depends on a clock or on chance.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::testing {

/// What the cluster is like. Instance i is "instance-I", counted from 1, and its ring has its name.
/// The workflow set is "default". Its application "t2v" has the stages text_encoder, diffusion
/// (five of eight instances) and vae_decode.
struct SceneOptions {
  int nodes = 8;         ///< Instances. From 8 on, the last one is idle.
  int device_nodes = 8;  ///< So many instances report devices. The others are on "cpu".
  int devices = 1;       ///< Devices of each of them.
  /// Every third device reports no sm_active, no power limit and no temperature. Every fourth
  /// reports nothing at all.
  bool odd_devices = false;
  int rings = 8;  ///< Rings of the first instances, then of the databases.
  int jobs = 60;  ///< The newest 16 are under way; 4 of those are queued.
  int databases = 2;
  int replicas = 3;
  int plans = 3;
  int audit = 12;
  int alerts = 5;
  /// Names and texts contain markup, control characters, right-to-left overrides, format strings or
  /// invalid UTF-8, or are 10 kB long. Ids stay different.
  bool hostile = false;
  std::int64_t at_ms = 1'800'000'000'000;  ///< 2027-01-15 08:00:00 UTC.
};

/// A hostile text; `kind` may be any number.
std::string HostileText(int kind);

/// A cluster over time.
///
/// Threading: thread-confined. Snapshots are values.
class Scene {
 public:
  static constexpr std::int64_t kTickMs = 100;

  explicit Scene(SceneOptions options = {});
  [[nodiscard]] const std::shared_ptr<const session::Snapshot>& snapshot() const {
    return snapshot_;
  }
  /// Goes on by `ticks`. Loads and rings change, and each job under way is a step further. In every
  /// second one job ends and another one comes. What does not change is the same object, as in a
  /// Session.
  std::shared_ptr<const session::Snapshot> Step(int ticks = 1);

 private:
  template <typename T>
  [[nodiscard]] session::Part<T> Now(T value) const;
  [[nodiscard]] std::string Text(std::string_view plain, int kind) const;
  void MakeServices(v1::Cluster& cluster) const;
  [[nodiscard]] std::string InstanceId(int i) const;
  [[nodiscard]] v1::Node Instance(int i) const;
  void SetLoad(v1::Node& node, int i) const;
  void AddDevice(v1::NodeLoad& load, int i, int device) const;
  [[nodiscard]] v1::Cluster MakeCluster() const;
  [[nodiscard]] v1::Elasticity MakeElasticity() const;
  [[nodiscard]] v1::Plan MakePlan(int i) const;
  [[nodiscard]] session::Rings MakeRings() const;
  [[nodiscard]] v1::Job MakeJob(int number, bool active) const;
  [[nodiscard]] session::JobList NextJobs() const;
  [[nodiscard]] session::Databases MakeDatabases() const;
  [[nodiscard]] session::Replicas MakeReplicas() const;
  [[nodiscard]] session::Audit MakeAudit() const;
  [[nodiscard]] session::Alerts MakeAlerts() const;

  SceneOptions options_;
  std::int64_t tick_ = 0;
  std::shared_ptr<const session::Snapshot> snapshot_;
};

/// A healthy connection.
session::LinkStatus LiveLink(std::int64_t now_ms = SceneOptions().at_ms);

}  // namespace onepiece::testing
