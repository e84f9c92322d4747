// The applications of the cluster that is measured.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "onepiece/v1/workflow.pb.h"
#include "tests/bench/control_plane/fleet.h"

namespace onepiece::bench {

inline v1::StageSpec StageOf(int number) {
  v1::StageSpec stage;
  stage.set_stage(absl::StrCat("stage-", number));
  stage.set_plugin("bench");
  stage.set_model("bench");
  return stage;
}

/// Has four pools, over which the instances are spread.
inline v1::Workflow ManyPools() {
  constexpr int kPools = 4;
  v1::Workflow workflow;
  workflow.set_app_id("pools");
  for (int number = 0; number < kPools; ++number) *workflow.add_stages() = StageOf(number);
  return workflow;
}

/// Shares its only pool with the other application, so that a change of its name changes nothing
/// but the routing table.
inline v1::Workflow Changing(std::int64_t version) {
  v1::Workflow workflow;
  workflow.set_app_id(kChangingApp);
  workflow.set_display_name(std::to_string(version));
  *workflow.add_stages() = StageOf(0);
  return workflow;
}

}  // namespace onepiece::bench
