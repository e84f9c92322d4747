#include "cluster/cli/verbs.h"

#include "cluster/local/control.h"

namespace onepiece::cli {
namespace {

constexpr char kWithStages[] = "It is built and installed with the stages";
constexpr char kWithNodeManager[] = "It is built and installed with the NodeManager";
constexpr char kWithTests[] = "It is built with the tests (-DONEPIECE_TESTS=ON)";

constexpr Verb kVerbs[] = {
    {"up", "Start a cluster on this machine and wait until it is ready", DefineUp},
    {local::kSuperviseVerb, "", DefineSupervise},
    {"down", "End the cluster and remove everything it left behind", DefineDown},
    {"status", "List every process of the cluster", DefineStatus},
    {"cluster", "The NodeManager's replicas: how they are, and who they are", DefineCluster},
    {"cluster backup", "Write the NodeManagers' state into a file, while they run",
     DefineClusterBackup},
    {"cluster restore", "Begin a new group with a backup, after all replicas are lost", nullptr,
     "onepiece-regroup restore", kWithNodeManager},
    {"cluster recover", "Begin a new group with one replica's disk, after a majority is lost",
     nullptr, "onepiece-regroup recover", kWithNodeManager},
    {"init", "Make the CA, the first NodeManager and the admin of a new cluster", DefineInit},
    {"join", "Make this host a node of a cluster, with a join token", DefineJoin},
    {"context", "The clusters that you use, by name: add one, choose one", DefineContext},
    {"whoami", "Whom the cluster takes you for, and what you may do", DefineWhoAmI},
    {"token", "Tokens of programs and of hosts that join: make, list and revoke them", DefineToken},
    {"cert", "Certificates: make and verify files; list, revoke and rotate the cluster's",
     DefineCert},
    {"usage", "What each tenant has used: jobs, worker seconds, bytes", DefineUsage},
    {"audit", "Who changed what, from where and why, newest first", DefineAudit},
    {"node", "The nodes of the cluster: list them, show one, forget a dead one", DefineNode},
    {"config", "The cluster's configuration: show it, change it, who changed it and why",
     DefineConfig},
    {"apply", "Make the cluster's configuration what a file says", DefineApply},
    {"rebalance", "Move instances between stages, and see how pools are", DefineRebalance},
    {"drain", "Take an instance out, so that it can be removed without losing a job", DefineDrain},
    {"pin", "Make automatic moves leave an instance where it is", DefinePin},
    {"unpin", "Let automatic moves take an instance again", DefineUnpin},
    {"db", "Look into the results databases", DefineDatabase},
    {"rings", "How every ring is, and who is connected to it", DefineRings},
    {"logs", "What servers log: the last lines of each, in the order of time", DefineLogs},
    {"submit", "Submit a job; prints its UID", DefineSubmit},
    {"get", "Show a job; fetch its result", DefineGet},
    {"cancel", "Cancel a job", DefineCancel},
    {"delete", "Forget a job and its result; one that runs is cancelled", DefineDelete},
    {"watch", "Follow a job to its end", DefineWatch},
    {"jobs", "List jobs, newest first", DefineJobs},
    {"generate", "Run a whole workflow in this process, without a cluster", nullptr,
     "onepiece-model generate", kWithStages},
    {"verify", "Compare this build's numbers with recorded ones", nullptr, "onepiece-model verify",
     kWithStages},
    {"inspect", "Components, parameters, dtypes and memory of a model folder", nullptr,
     "onepiece-model inspect", kWithStages},
    {"workflow", "Workflow files and applications", DefineWorkflow},
    {"simulate", "What a cluster would do under a load, in seconds", nullptr, "onepiece-simulate",
     kWithNodeManager},
    {"record", "Write what happens in a cluster into one file", DefineRecord},
    {"show", "A cluster at a moment of a recording", DefineShow},
    {"bench", "Measure this machine"},
    {"bench hop", "Time from one instance process to the next", nullptr, "onepiece-bench hop",
     kWithTests},
    {"bench elastic",
     "Device seconds reserved per job: stages on instances that move, against the fused workflow "
     "and stages that stay; simulated, then in embedded clusters; takes a quarter of an hour",
     nullptr, "onepiece-bench elastic", kWithTests},
    {"bench ring", "The ring beside ZeroMQ, UCX, gRPC and Boost, and the machine's limits", nullptr,
     "onepiece-bench ring", kWithTests},
    {"bench fabric", "Single operations of a fabric, beside the machine's own", nullptr,
     "onepiece-bench fabric", kWithTests},
    {"bench collectives", "Groups over the fabric beside gloo's and MPI's", nullptr,
     "onepiece-bench-collectives collectives", kWithTests},
    {"bench consensus", "Three NodeManagers beside three etcd", nullptr,
     "onepiece-bench-consensus consensus", kWithTests},
    {"bench control", "A NodeManager group with many nodes, beside etcd", nullptr,
     "onepiece-bench-control control", kWithTests},
    {"bench database", "The results database beside Redis and memcached", nullptr,
     "onepiece-bench-database database",
     "It is built with the tests (-DONEPIECE_TESTS=ON) where the packages libhiredis-dev and "
     "libmemcached-dev are"},
    {"bench security", "What identity costs: a secure cluster beside an insecure one", nullptr,
     "onepiece-bench-security security", kWithTests},
    {"bench wan", "The Wan components beside a straight port and Python torch", nullptr,
     "onepiece-bench-wan wan", kWithTests},
    {"completion", "Print a script that completes verbs and options in a shell", DefineCompletion},
};

}  // namespace

std::span<const Verb> Verbs() { return kVerbs; }

}  // namespace onepiece::cli
