#include "cluster/local/plan.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "cluster/config/yaml.h"
#include "cluster/fabric/fabric.h"
#include "cluster/local/ports.h"
#include "cluster/local/resources.h"
#include "cluster/workflow/pool.h"

namespace onepiece::local {
namespace {

namespace fs = std::filesystem;
constexpr int kMaxProcesses = 256;

std::string Resolve(const std::string& path, const std::string& folder) {
  return (fs::path(folder) / path).lexically_normal().string();
}

absl::Status AddDefaultInstances(v1::LocalClusterConfig& config) {
  // Adds one instance for each pool. The NodeManager decides which pool of its stage it serves.
  std::set<workflow::PoolKey> pools;
  std::map<std::string, v1::LocalInstances*> by_stage;
  for (const auto& file : config.workflow_files()) {
    v1::Workflow workflow;
    ONEPIECE_RETURN_IF_ERROR(config::LoadYamlFile(file, &workflow));
    for (const auto& stage : workflow.stages()) {
      if (!pools.insert(workflow::PoolOf(stage)).second) continue;
      v1::LocalInstances*& instances = by_stage[stage.stage()];
      if (instances == nullptr) instances = config.add_instances();
      instances->set_stage(stage.stage());
      instances->set_count(instances->count() + std::max(1, stage.min_instances()));
    }
  }
  return absl::OkStatus();
}

std::string FabricUri(const std::string& fabric, const std::string& cluster_id) {
  if (fabric.empty() || fabric == "shm") return "shm://" + cluster_id;
  if (fabric == "ucx") return "ucx://lo";
  if (fabric == "verbs") return "verbs://";
  return fabric;
}

/// Makes a plan out of a configuration message.
class Planner {
 public:
  Planner(const v1::LocalClusterConfig& config, const DataDir& dir, const std::string& cluster_id)
      : config_(config), dir_(dir) {
    plan_.cluster_id = cluster_id;
    plan_.fabric = FabricUri(config.fabric(), cluster_id);
    plan_.insecure = config.insecure();
  }

  absl::StatusOr<ClusterPlan> Make() {
    ONEPIECE_RETURN_IF_ERROR(fabric::Fabric::Open(plan_.fabric).status());
    ONEPIECE_RETURN_IF_ERROR(AddNodeManagers());
    if (config_.workflow_sets() < 0) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                             "workflow_sets: at least 1");
    }
    for (int set = 1; set <= std::max(1, config_.workflow_sets()); ++set)
      ONEPIECE_RETURN_IF_ERROR(AddSet(set));
    return std::move(plan_);
  }

 private:
  /// Plans one workflow set. The first set is "default", and its nodes have plain names. The second
  /// is "set-2", and its nodes are "set-2-proxy-1" and so on.
  absl::Status AddSet(int number) {
    set_ = number == 1 ? "default" : "set-" + std::to_string(number);
    prefix_ = number == 1 ? "" : set_ + "-";
    for (int i = 1; i <= std::max(1, config_.databases()); ++i) {
      auto database = std::make_shared<v1::DatabaseConfig>();
      *database->mutable_ring() = config_.ring();
      database->set_budget_bytes(config_.database_budget_bytes());
      database->set_when_full(config_.database_when_full());
      ONEPIECE_RETURN_IF_ERROR(
          Add("database", prefix_ + "database-" + std::to_string(i), database, ""));
    }
    for (int i = 1; i <= std::max(1, config_.proxies()); ++i) {
      const std::string listen = number == 1 && i == 1 ? config_.proxy_listen() : "";
      ONEPIECE_RETURN_IF_ERROR(Add("proxy", prefix_ + "proxy-" + std::to_string(i),
                                   std::make_shared<v1::ProxyConfig>(), listen));
    }
    return AddInstances();
  }

  absl::Status AddNodeManagers() {
    const int count = config_.nodemanagers() == 0 ? 1 : config_.nodemanagers();
    if (count != 1 && count != 3 && count != 5) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                             "nodemanagers: 1, 3 or 5, not " + std::to_string(count) +
                                 ": a majority of an even number tolerates no more failures");
    }
    std::vector<std::string> addresses = {config_.nodemanager_listen()};
    if (count > 1) {
      // Replicas must know each other's addresses before they start, so the ports are fixed here.
      ONEPIECE_ASSIGN_OR_RETURN(const std::vector<int> ports, FreePorts(count));
      addresses.clear();
      for (const int port : ports) addresses.push_back("127.0.0.1:" + std::to_string(port));
      const std::string& listen = config_.nodemanager_listen();
      if (!listen.empty() && !listen.ends_with(":0")) addresses.front() = listen;
    }
    for (int i = 0; i < count; ++i) {
      auto manager = std::make_shared<v1::NodeManagerConfig>();
      manager->set_cluster_id(plan_.cluster_id);
      *manager->mutable_workflow_files() = config_.workflow_files();
      if (config_.has_elasticity()) *manager->mutable_elasticity() = config_.elasticity();
      for (int j = 0; count > 1 && j < count; ++j) {
        manager->add_replicas("nodemanager-" + std::to_string(j + 1) + "=" +
                              addresses[static_cast<std::size_t>(j)]);
      }
      manager->set_bootstrap(count > 1 && i == 0);
      ONEPIECE_RETURN_IF_ERROR(Add("nodemanager", "nodemanager-" + std::to_string(i + 1), manager,
                                   addresses[static_cast<std::size_t>(i)]));
    }
    plan_.nodemanagers = static_cast<std::size_t>(count);
    return absl::OkStatus();
  }

  absl::Status AddInstances() {
    ONEPIECE_ASSIGN_OR_RETURN(const std::string plugin_dir, PluginDir());
    std::map<std::string, int> numbers;
    for (const auto& group : config_.instances()) {
      const std::string what = group.stage().empty() ? "any" : group.stage();
      for (int i = 0; i < std::max(1, group.count()); ++i) {
        auto instance = std::make_shared<v1::InstanceConfig>();
        *instance->mutable_ring() = config_.ring();
        instance->set_pinned_stage(group.stage());
        instance->set_model_root(config_.model_root());
        instance->set_plugin_dir(plugin_dir);
        *instance->mutable_devices() = group.devices();
        instance->set_parked_bytes(config_.parked_bytes());
        *instance->mutable_idle_work() = config_.idle_work();
        ONEPIECE_RETURN_IF_ERROR(
            Add("instance", prefix_ + "instance-" + what + "-" + std::to_string(++numbers[what]),
                instance, ""));
      }
    }
    return absl::OkStatus();
  }

  template <typename Config>
  absl::Status Add(const std::string& role, const std::string& node_id,
                   std::shared_ptr<Config> config, const std::string& listen) {
    if (plan_.nodes.size() >= kMaxProcesses) {
      return base::MakeError(
          absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
          "an embedded cluster has at most " + std::to_string(kMaxProcesses) + " processes");
    }
    ONEPIECE_ASSIGN_OR_RETURN(const std::string program, ProgramPath("onepiece-" + role));
    v1::NodeConfig& node = *config->mutable_node();
    node.set_node_id(node_id);
    node.set_listen(listen.empty() ? "127.0.0.1:0" : listen);
    node.set_metrics_address("127.0.0.1:0");
    node.set_fabric(plan_.fabric);
    node.set_workflow_set(set_);
    node.set_data_dir(dir_.path + "/" + node_id);
    node.set_ready_file(dir_.ReadyFile(node_id));
    node.set_insecure(plan_.insecure);
    if (!plan_.insecure) node.set_identity(dir_.Identity() + "/" + node_id);
    plan_.nodes.push_back({node_id, role, program, config, &node});
    return absl::OkStatus();
  }

  const v1::LocalClusterConfig& config_;
  const DataDir& dir_;
  ClusterPlan plan_;
  std::string set_ = "default", prefix_;  // The set that is being planned.
};

void EmitMessage(const google::protobuf::Message& message, YAML::Emitter& out);

void EmitScalar(const google::protobuf::Message& message,
                const google::protobuf::FieldDescriptor& field, int index, YAML::Emitter& out) {
  using google::protobuf::FieldDescriptor;
  const auto& reflection = *message.GetReflection();
  const auto get = [&](auto single, auto repeated) {
    return index < 0 ? (reflection.*single)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  using R = google::protobuf::Reflection;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      EmitMessage(index < 0 ? reflection.GetMessage(message, &field)
                            : reflection.GetRepeatedMessage(message, &field, index),
                  out);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      out << YAML::DoubleQuoted << get(&R::GetString, &R::GetRepeatedString);
      break;
    case FieldDescriptor::CPPTYPE_INT32:
      out << get(&R::GetInt32, &R::GetRepeatedInt32);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      out << get(&R::GetEnum, &R::GetRepeatedEnum)->name();
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      out << get(&R::GetBool, &R::GetRepeatedBool);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      out << get(&R::GetInt64, &R::GetRepeatedInt64);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      out << get(&R::GetDouble, &R::GetRepeatedDouble);
      break;
    default:
      ONEPIECE_CHECK(false && "a configuration field of a type that ToYaml does not write");
  }
}

void EmitMessage(const google::protobuf::Message& message, YAML::Emitter& out) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  out << YAML::BeginMap;
  for (const auto* field : fields) {
    out << YAML::Key << field->name() << YAML::Value;
    if (!field->is_repeated()) {
      EmitScalar(message, *field, -1, out);
      continue;
    }
    out << YAML::BeginSeq;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i)
      EmitScalar(message, *field, i, out);
    out << YAML::EndSeq;
  }
  out << YAML::EndMap;
}

}  // namespace

absl::StatusOr<v1::LocalClusterConfig> Complete(v1::LocalClusterConfig config,
                                                const std::string& folder) {
  for (auto& file : *config.mutable_workflow_files()) file = Resolve(file, folder);
  if (config.workflow_files().empty()) {
    for (const char* name : {"workflows/tiny-wan-t2v.yaml", "workflows/tiny-wan-i2v.yaml"}) {
      ONEPIECE_ASSIGN_OR_RETURN(*config.add_workflow_files(), ResourcePath(name));
    }
  }
  if (config.model_root().empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(*config.mutable_model_root(), ResourcePath("models"));
  } else {
    config.set_model_root(Resolve(config.model_root(), folder));
  }
  if (config.databases() == 0) config.set_databases(2);
  if (config.instances().empty()) ONEPIECE_RETURN_IF_ERROR(AddDefaultInstances(config));
  return config;
}

absl::StatusOr<ClusterPlan> MakePlan(const v1::LocalClusterConfig& config, const DataDir& dir,
                                     const std::string& cluster_id) {
  return Planner(config, dir, cluster_id).Make();
}

void MakeReadOnly(ClusterPlan& plan) {
  for (NodePlan& node : plan.nodes) node.node->set_read_only(node.role != "instance");
}

std::string ToYaml(const google::protobuf::Message& message) {
  YAML::Emitter out;
  EmitMessage(message, out);
  return std::string(out.c_str()) + "\n";
}

}  // namespace onepiece::local
