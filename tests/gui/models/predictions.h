// Makes a prediction as a server would, with numbers that a test can look for.
#pragma once

#include <string>

#include "onepiece/v1/elasticity.pb.h"

namespace onepiece::testing {

inline v1::Estimate Band(double value, double low, double high) {
  v1::Estimate estimate;
  estimate.set_value(value);
  estimate.set_low(low);
  estimate.set_high(high);
  return estimate;
}

/// The prediction of moves that bring the pool to four instances: throughput, loads and waits, with
/// bands.
inline v1::Prediction MakePrediction(const std::string& pool_id, int instances_before) {
  v1::Prediction prediction;
  prediction.set_basis("12 min window, 341 jobs");
  v1::AppPrediction& app = *prediction.add_apps();
  app.set_workflow_set("default");
  app.set_app_id("wan-t2v");
  *app.mutable_throughput_before() = Band(0.42, 0.38, 0.47);
  *app.mutable_throughput_after() = Band(0.63, 0.57, 0.7);
  v1::PoolPrediction& pool = *prediction.add_pools();
  pool.set_workflow_set("default");
  pool.set_pool(pool_id);
  pool.set_instances_before(instances_before);
  pool.set_instances_after(4);
  *pool.mutable_utilization_before() = Band(1.2, 1.1, 1.3);
  *pool.mutable_utilization_after() = Band(0.9, 0.82, 0.97);
  *pool.mutable_wait_before() = Band(-1, -1, -1);
  *pool.mutable_wait_after() = Band(4, 3, 6);
  prediction.set_bottleneck_before(pool_id);
  prediction.set_bottleneck_after(pool_id);
  prediction.set_transient_loss_s(84);
  return prediction;
}

}  // namespace onepiece::testing
