// What the policies' tests look at: views of clusters that they make up.
#pragma once

#include <QtTest>
#include <string>
#include <utility>
#include <vector>

#include "nodemanager/policy/policy.h"

namespace onepiece::nodemanager {

inline constexpr double kWindow = 300;

inline v1::ElasticityConfig Config(int max_moves = 1) {
  v1::ElasticityConfig config;
  config.set_window_s(kWindow);
  config.set_max_moves(max_moves);
  return *CompleteElasticity(config);
}

// A view of the pools and instances that the test names. All of them are measured, and none has
// changed lately.
struct Cluster {
  PolicyView view;
  int names = 0;

  Cluster() { view.now = base::MonotonicTime(std::chrono::seconds(1'000'000)); }

  SetView& Set(const std::string& name) {
    for (SetView& set : view.sets) {
      if (set.workflow_set == name) return set;
    }
    view.sets.push_back({.workflow_set = name});
    return view.sets.back();
  }
  PoolView& Pool(const std::string& id, const std::string& set = "s") {
    for (PoolView& pool : view.pools) {
      if (pool.id == id && pool.workflow_set == set) return pool;
    }
    view.pools.push_back({.workflow_set = set, .id = id, .stage = id});
    Set(set).model.pools.push_back({id, 0});
    return view.pools.back();
  }
  // Adds `count` instances of `pool`, or idle ones when it is empty, with that utilisation.
  Cluster& Instances(const std::string& pool, int count, double utilization,
                     const std::string& set = "s") {
    if (!pool.empty()) Pool(pool, set);
    for (int i = 0; i < count; ++i) {
      InstanceView instance;
      instance.node_id = QString("i%1").arg(++names, 3, 10, QChar('0')).toStdString();
      instance.workflow_set = set;
      instance.pool = pool;
      instance.utilization = utilization;
      view.instances.push_back(instance);
    }
    return *this;
  }
  // Adds an application that would keep `load` workers of each pool busy if all its jobs were
  // admitted.
  Cluster& App(const std::string& id, std::vector<std::pair<std::string, double>> loads,
               const std::string& set = "s") {
    capacity::App app{.id = id, .arrivals_per_s = 1};
    for (const auto& [pool, load] : loads) {
      Pool(pool, set);
      app.stages.push_back({.stage = pool, .pool = pool, .seconds_per_job = load, .samples = 1000});
    }
    Set(set).model.apps.push_back(app);
    return *this;
  }
  Cluster& Past(int seconds_ago, const std::string& from, const std::string& to) {
    view.past.push_back({.at = view.now - std::chrono::seconds(seconds_ago),
                         .node_id = "x",
                         .from_pool = from,
                         .to_pool = to,
                         .from_set = "s",
                         .to_set = "s"});
    return *this;
  }
  [[nodiscard]] InstanceView& First(const std::string& pool) {
    for (InstanceView& instance : view.instances) {
      if (instance.pool == pool) return instance;
    }
    qFatal("no such instance");
  }
  [[nodiscard]] std::string PoolOf(const std::string& node) const {
    for (const InstanceView& instance : view.instances) {
      if (instance.node_id == node) return instance.pool;
    }
    return "?";
  }
  [[nodiscard]] PolicyDecision Decide(const v1::ElasticityConfig& config = Config()) const {
    return (*MakePolicy(config))->Decide(view);
  }
  // The moves in order, each as "x>y". Sets stand with them where they are not "s".
  [[nodiscard]] QString Moves(const v1::ElasticityConfig& config = Config()) const {
    QStringList moves;
    for (const WantedMove& move : Decide(config).moves) {
      moves.append(QString::fromStdString(PoolOf(move.node_id) + ">" + move.to_pool +
                                          (move.to_set == "s" ? "" : "@" + move.to_set)));
    }
    return moves.join(" ");
  }
};

}  // namespace onepiece::nodemanager
