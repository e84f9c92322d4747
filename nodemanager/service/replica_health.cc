#include "nodemanager/service/replica_health.h"

#include "onepiece/v1/cluster_config.grpc.pb.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/elasticity.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::nodemanager {

void SetHealth(ReplicaFitness fitness,
               absl::FunctionRef<void(const std::string& service, bool serving)> set) {
  set("", fitness.takes_part);
  for (const char* leaders :
       {v1::NodeManagerService::service_full_name(), v1::ElasticityService::service_full_name(),
        v1::ConfigService::service_full_name()})
    set(leaders, fitness.knows_leader);
  set(v1::ReplicaService::service_full_name(), fitness.takes_part);
  set(v1::ConsensusService::service_full_name(), true);
}

}  // namespace onepiece::nodemanager
