// What a stage author includes: Stage, StageContext and the plug-in entry point
// (docs/stage-authors.md).
//
// A stage is one step of a workflow. The runtime loads it from a shared object in
// lib/onepiece/stages, gives it a device and a model folder, and calls Run once for each job.
// Exceptions must not leave a stage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/ids.h"
#include "cluster/message/artifact.h"

namespace onepiece::sdk {

using message::Artifact;
using message::Parameters;

/// What a stage takes and makes; shown by tools and checked when a workflow is put together.
struct StageInfo {
  std::string name;  ///< "vae_decode"
  std::string description;
  std::vector<std::string> inputs;           ///< Artifact names that Run needs.
  std::vector<std::string> optional_inputs;  ///< Artifact names that Run uses when they are there.
  std::vector<std::string> outputs;          ///< Artifact names that Run makes.
  std::vector<std::string> parameters;       ///< Job parameters that Run reads.
};

/// Where and with what a stage is loaded.
struct LoadOptions {
  std::string device = "cpu";  ///< "cpu" or "cuda:N".
  std::string model_dir;       ///< Model folder; empty for stages without weights.
  int threads = 1;  ///< Intra-op threads. Sums differ with the count, so it is always set.
  std::string precision = "f32";  ///< "f32", "bf16" or "f16": what products are computed in.
};

/// A number that a stage exports: becomes onepiece_stage_NAME on the instance's metrics endpoint.
struct StageMetric {
  std::string name;  ///< "conditioning_cache_hits_total"; lower case, unit at the end.
  std::string help;
  bool counter = false;  ///< Only grows; the name ends in _total. Else a gauge.
  /// A number of the whole process, the same from every object of the stage. Else of this object
  /// alone: those of an instance's workers are added up.
  bool of_process = false;
  double value = 0;
};

/// What a running stage may ask of the runtime. Valid for one call of Run, on the calling thread
/// and any threads that Run joins before it returns.
class StageContext {
 public:
  virtual ~StageContext() = default;
  [[nodiscard]] virtual const base::Uid& uid() const = 0;
  /// Validated against the application's schema; defaults are filled in.
  [[nodiscard]] virtual const Parameters& parameters() const = 0;
  /// Says that step `step` of `steps` is done (1-based) and asks whether to go on: CANCELLED or
  /// DEADLINE_EXCEEDED mean that Run shall return that status soon. Cheap; call it at every step
  /// boundary.
  [[nodiscard]] virtual absl::Status Progress(int step, int steps) = 0;
  /// Makes the artifacts from which the computation can go on.
  using SaveState = std::function<absl::StatusOr<std::vector<Artifact>>()>;
  /// Progress for a stage that can go on later from here: the runtime may call `save`, during this
  /// call only. When it wants the work done elsewhere it answers ABORTED, and Run shall return
  /// that. A later Run of the same job, in any process, then finds the saved artifacts among its
  /// inputs.
  [[nodiscard]] virtual absl::Status Checkpoint(int step, int steps, const SaveState& save) {
    (void)save;
    return Progress(step, steps);
  }
};

/// One stage of a workflow, loaded with one model. Calls never overlap, Metrics aside, but come
/// from several threads: an instance loads one model while it computes with another.
class Stage {
 public:
  virtual ~Stage() = default;
  [[nodiscard]] virtual StageInfo Info() const = 0;
  /// Loads weights.
  /// Errors: NOT_FOUND, INVALID_ARGUMENT (the files do not fit), RESOURCE_EXHAUSTED (memory).
  virtual absl::Status Load(const LoadOptions& options) = 0;
  /// Computes one job. The runtime has checked that every input of Info() is present. Inputs are
  /// immutable views; outputs own or share their bytes.
  /// Errors: INVALID_ARGUMENT (bad input), CANCELLED, DEADLINE_EXCEEDED, INTERNAL.
  virtual absl::StatusOr<std::vector<Artifact>> Run(StageContext& context,
                                                    const std::vector<Artifact>& inputs) = 0;
  /// Gives memory back. The stage may be loaded again.
  virtual void Unload() = 0;
  /// The stage's own numbers. Called on any thread between Load and Unload, also during Run.
  [[nodiscard]] virtual std::vector<StageMetric> Metrics() const { return {}; }
};

class ModelTools;  // stages/sdk/model_tools.h

/// What a plug-in file offers. One static object; thread-safe.
class Plugin {
 public:
  virtual ~Plugin() = default;
  [[nodiscard]] virtual std::vector<StageInfo> Stages() const = 0;
  /// nullptr when the plug-in has no stage of that name.
  [[nodiscard]] virtual std::unique_ptr<Stage> Create(std::string_view stage) const = 0;
  /// Tools for this plug-in's model files (verify, inspect), or nullptr.
  [[nodiscard]] virtual const ModelTools* model_tools() const { return nullptr; }
};

/// Grows whenever anything in this header or in model_tools.h changes its binary form.
inline constexpr int kPluginAbi = 3;
inline constexpr char kPluginEntryPoint[] = "onepiece_stage_plugin";

/// What the entry point returns. The runtime refuses another ABI number before it touches `plugin`.
struct PluginEntry {
  int abi = kPluginAbi;
  const Plugin* plugin = nullptr;
};

}  // namespace onepiece::sdk

/// Makes `PluginClass` the plug-in of this shared object. Use once, at namespace scope.
#define ONEPIECE_STAGE_PLUGIN(PluginClass)                                       \
  extern "C" __attribute__((visibility("default"))) ::onepiece::sdk::PluginEntry \
  onepiece_stage_plugin() {                                                      \
    static const PluginClass plugin;                                             \
    return {::onepiece::sdk::kPluginAbi, &plugin};                               \
  }
