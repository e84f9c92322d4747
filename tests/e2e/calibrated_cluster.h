// Clusters of stages of known cost (calibrated_plugin.cc).
#pragma once

#include <fstream>
#include <map>
#include <string>

#include "tests/e2e/cluster_fixture.h"
#include "tests/e2e/job_load.h"

namespace onepiece::e2e {

/// The application "chain": x, then y. Static placement; costs are known after a few seconds.
inline constexpr char kChainWorkflow[] =
    "app_id: chain\n"
    "stages:\n"
    "  - {stage: x, plugin: calibrated, cost: [seconds_x]}\n"
    "  - {stage: y, plugin: calibrated, cost: [seconds_y]}\n"
    "parameters:\n"
    "  - {name: seconds_x, type: NUMBER, default_value: \"0.1\", minimum: 0.001, maximum: 100}\n"
    "  - {name: seconds_y, type: NUMBER, default_value: \"0.1\", minimum: 0.001, maximum: 100}\n";
inline constexpr char kChainCluster[] =
    "workflow_files: [chain.yaml]\n"
    "instances:\n"
    "  - {stage: x}\n"
    "  - {stage: y}\n"
    "elasticity: {policy: static, window_s: 10}\n";

/// The application "only-STAGE": `stage` ("x", "y" or "z") alone.
inline std::string OneStageWorkflow(const std::string& stage) {
  std::string text =
      "app_id: only-STAGE\n"
      "stages:\n"
      "  - {stage: STAGE, plugin: calibrated, cost: [seconds_STAGE]}\n"
      "parameters:\n"
      "  - {name: seconds_STAGE, type: NUMBER, default_value: \"0.1\", minimum: 0.001, maximum: "
      "100}\n";
  for (auto at = text.find("STAGE"); at != std::string::npos; at = text.find("STAGE", at))
    text.replace(at, 5, stage);
  return text;
}

/// Starts the cluster with `cluster_yaml`. The `workflows` (by file name) lie beside it.
[[nodiscard]] inline bool UpCalibrated(const ClusterUnderTest& cluster,
                                       const std::string& cluster_yaml,
                                       const std::map<std::string, std::string>& workflows) {
  qputenv("ONEPIECE_PLUGIN_DIR", ONEPIECE_BINARY_DIR "/tests/plugins/calibrated");
  for (const auto& [file, text] : workflows) std::ofstream(cluster.Path(file)) << text;
  return cluster.UpWith(cluster_yaml);
}

/// Runs jobs of "chain", one after the other, until the proxy knows their cost and refuses hopeless
/// jobs.
inline bool LearnCosts(const std::string& proxy) {
  return testing::Eventually(std::chrono::seconds(30), [&] {
    JobLoad load(proxy);
    load.Offer("chain", {{"seconds_x", 0.05}, {"seconds_y", 0.05}});
    if (!load.Await(std::chrono::seconds(20))) return false;
    load.Offer("chain", {{"seconds_x", 2}, {"seconds_y", 3}}, std::chrono::seconds(1));
    return load.jobs().back().reason == "DEADLINE_TOO_SHORT";
  });
}

}  // namespace onepiece::e2e
