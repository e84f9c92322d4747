// One job computed by the workers of a group: the transformer, the denoising and the autoencoder
// against one worker's, with members that change from step to step.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <QtTest>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <memory>
#include <optional>

#include "cluster/base/status.h"
#include "stages/model/diffusion_state.h"
#include "stages/model/noise.h"
#include "stages/tensor/safetensors.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/generation.h"
#include "stages/wan/transformer_3d.h"
#include "tests/collectives/thread_group.h"
#include "tests/reason.h"
#include "tests/test_main.h"
#include "tests/wan/models.h"

namespace onepiece::wan {
namespace {

using model::KeyValueWay;
using model::Parallel;
using model::ParallelPlan;
using testing::FirstWorkers;
using testing::Patience;
using testing::RunWorkers;
using testing::ThreadGroup;
using testing::ThreadWorld;
using Results = std::vector<absl::StatusOr<at::Tensor>>;

constexpr double kEqual = 1e-5;

double ErrorTo(const at::Tensor& expected, const at::Tensor& ours) {
  if (ours.sizes() != expected.sizes()) return INFINITY;
  return ((ours - expected).norm() / expected.norm()).item<double>();
}

/// Returns the greatest error of any rank.
double WorstError(const at::Tensor& expected, const Results& results) {
  double error = 0;
  for (const auto& result : results) {
    if (!result.ok()) qWarning("%s", result.status().ToString().c_str());
    error = std::max(error, result.ok() ? ErrorTo(expected, *result) : INFINITY);
  }
  return error;
}

at::Tensor Noise(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed));
}

/// Returns the CPU time of the calling thread.
double ThreadSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Every plan of these many ranks for a model of `heads` heads.
std::vector<ParallelPlan> Plans(std::int64_t heads) {
  std::vector<ParallelPlan> plans;
  for (const int cfg : {1, 2}) {
    for (const int sequence : {1, 2, 3, 4}) {
      for (const int ulysses : {1, 2, 3, 4}) {
        if (sequence % ulysses != 0 || heads % ulysses != 0) continue;
        for (const KeyValueWay way : {KeyValueWay::kGather, KeyValueWay::kRing})
          plans.push_back({cfg, sequence, ulysses, way});
      }
    }
  }
  return plans;
}

std::string TextOf(const ParallelPlan& plan) {
  return "cfg " + std::to_string(plan.cfg) + " sequence " + std::to_string(plan.sequence) +
         " ulysses " + std::to_string(plan.ulysses) +
         (plan.way == KeyValueWay::kRing ? " ring" : " gather");
}

/// One prediction for two texts.
struct Prediction {
  at::Tensor hidden;
  double timestep = 500;
  std::vector<WanTransformer::Context> contexts;  ///< By branch.
};

Results ForwardByGroup(const WanTransformer& transformer, const Prediction& job,
                       const ParallelPlan& plan, ThreadWorld& world) {
  return RunWorkers<at::Tensor>(
      plan.ranks(), [&](std::uint32_t worker) -> absl::StatusOr<at::Tensor> {
        ThreadGroup group(world, FirstWorkers(plan.ranks()), static_cast<int>(worker));
        const Parallel parallel{&group, plan, Patience};
        return transformer.Forward(job.hidden, job.timestep,
                                   job.contexts[static_cast<std::size_t>(parallel.branch())],
                                   parallel);
      });
}

std::map<std::string, at::Tensor> ReadRecording(const std::string& name) {
  std::map<std::string, at::Tensor> recorded;
  const auto file = tensor::SafetensorsFile::Open(Golden(name) + "/io.safetensors");
  if (!file.ok()) return recorded;
  for (const tensor::TensorEntry& entry : (*file)->index().tensors)
    recorded[entry.name] = tensor::ViewTensor(*file, entry)->clone();
  return recorded;
}

/// A run of Denoise by changing members.
struct Run {
  static constexpr int kSteps = 8;
  const WanTransformer& transformer;
  model::SchedulerConfig scheduler;
  double guidance = 5;
  KeyValueWay way = KeyValueWay::kGather;
  std::vector<std::int64_t> shape = {1, 16, 3, 8, 8};

  [[nodiscard]] DenoiseInputs Inputs() const {
    return {.prompt_embeds = Noise({1, 5, transformer.config().text_dim}, 1),
            .negative_prompt_embeds = Noise({1, 3, transformer.config().text_dim}, 2),
            .padded_tokens = 16,
            .guidance_scale = guidance};
  }
  [[nodiscard]] absl::StatusOr<at::Tensor> Alone() const {
    DenoiseInputs inputs = Inputs();
    inputs.latents = model::InitialLatents(model::MakeGenerator(3), shape);
    ONEPIECE_ASSIGN_OR_RETURN(const auto steps, model::MakeScheduler(scheduler, kSteps));
    return Denoise(transformer, *steps, inputs,
                   [](const DenoiseStep&) { return absl::OkStatus(); });
  }
};

using Members = std::vector<std::uint32_t>;

bool IsIn(const Members& members, std::uint32_t worker) {
  return std::ranges::find(members, worker) != members.end();
}

/// What worker `worker` does in the run whose step i is computed by schedule[i]. Returns the
/// latents if it computes the last step.
absl::StatusOr<at::Tensor> Work(const Run& run, const std::vector<Members>& schedule,
                                ThreadWorld& world, std::uint32_t worker) {
  at::Tensor latents;
  std::optional<ThreadGroup> group;
  const auto group_of_step = [&](int index) -> absl::StatusOr<StepGroup> {
    const Members& members = schedule[static_cast<std::size_t>(index)];
    const auto place = std::ranges::find(members, worker);
    if (place == members.end())
      return base::MakeError(absl::StatusCode::kAborted, "LEFT_GROUP", "no longer a member");
    group.emplace(
        world,
        sdk::GroupDescriptor{
            .job = "job", .epoch = static_cast<std::uint64_t>(index) + 1, .members = members},
        static_cast<int>(place - members.begin()));
    StepGroup with{.parallel = {&*group, {}, Patience}};
    const auto ranks = static_cast<int>(members.size());
    with.parallel.plan =
        model::DefaultPlan(ranks, run.transformer.WorkOf(run.shape, run.guidance > 1));
    with.parallel.plan.way = run.way;
    for (int rank = 0; index > 0 && rank < ranks; ++rank) {
      if (!IsIn(schedule[static_cast<std::size_t>(index) - 1],
                members[static_cast<std::size_t>(rank)]))
        with.newcomers.push_back(rank);
    }
    return with;
  };
  for (int step = 0; step < Run::kSteps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    if (!IsIn(schedule[at], worker) || (step > 0 && IsIn(schedule[at - 1], worker))) continue;
    // It comes here. A worker that comes later than the first step knows nothing but the inputs.
    DenoiseInputs inputs = run.Inputs();
    inputs.first_step = step;
    inputs.latents = step == 0 ? model::InitialLatents(model::MakeGenerator(3), run.shape)
                               : at::full(run.shape, NAN);
    ONEPIECE_ASSIGN_OR_RETURN(const auto steps, model::MakeScheduler(run.scheduler, Run::kSteps));
    const auto result = Denoise(
        run.transformer, *steps, inputs, [](const DenoiseStep&) { return absl::OkStatus(); },
        group_of_step);
    if (result.ok()) {
      latents = *result;
    } else if (Reason(result.status()) != "LEFT_GROUP") {
      return result.status();
    }
  }
  return latents;
}

}  // namespace

class ParallelTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    tensor::SetComputeThreads(1);
    tiny_ = LoadTransformer(kTinyModel + "/transformer");
    QVERIFY(tiny_ != nullptr);
  }

  void Forward_ByAGroup_IsOneWorkers_data() {
    QTest::addColumn<QString>("folder");
    QTest::newRow("tiny-wan-t2v") << QString::fromStdString(kTinyModel + "/transformer");
    QTest::newRow("tiny-wan-i2v") << QString::fromStdString(kModels + "/tiny-wan-i2v/transformer");
    QTest::newRow("golden t2v") << QString::fromStdString(Golden("transformer_t2v"));
    QTest::newRow("golden i2v") << QString::fromStdString(Golden("transformer_i2v"));
  }
  void Forward_ByAGroup_IsOneWorkers() {
    QFETCH(QString, folder);
    const c10::InferenceMode guard;
    const auto transformer = LoadTransformer(folder.toStdString());
    QVERIFY(transformer != nullptr);
    const TransformerConfig& config = transformer->config();
    // Sides that do not fill their last patch, and parts that begin within a frame.
    Prediction job{.hidden = Noise({1, config.in_channels, 3, 7, 10}, 1)};
    std::vector<at::Tensor> alone;
    for (std::uint64_t branch = 0; branch < 2; ++branch) {
      const at::Tensor image = config.images() == 0
                                   ? at::Tensor()
                                   : Noise({config.images(), 17, config.image_dim}, 4 + branch);
      auto context = transformer->Prepare(Noise({1, 512, config.text_dim}, 2 + branch), image);
      QVERIFY2(context.ok(), context.status().ToString().c_str());
      job.contexts.push_back(*std::move(context));
      alone.push_back(transformer->Forward(job.hidden, job.timestep, job.contexts.back()).value());
    }
    double worst = 0;
    for (const ParallelPlan& plan : Plans(config.num_heads)) {
      const at::Tensor expected = plan.cfg == 2 ? at::cat(alone) : alone[0];
      ThreadWorld world;
      const double error = WorstError(expected, ForwardByGroup(*transformer, job, plan, world));
      QVERIFY2(error <= kEqual, (TextOf(plan) + ": error " + std::to_string(error)).c_str());
      worst = std::max(worst, error);
    }
    qInfo("%zu plans, greatest error %.1e", Plans(config.num_heads).size(), worst);
  }

  /// The reference implementation's own numbers.
  void Forward_ByAGroup_ReproducesTheReference_data() {
    QTest::addColumn<QString>("golden");
    QTest::newRow("t2v") << "transformer_t2v";
    QTest::newRow("i2v") << "transformer_i2v";
  }
  void Forward_ByAGroup_ReproducesTheReference() {
    QFETCH(QString, golden);
    const c10::InferenceMode guard;
    const auto transformer = LoadTransformer(Golden(golden.toStdString()));
    QVERIFY(transformer != nullptr);
    auto recorded = ReadRecording(golden.toStdString());
    QVERIFY(!recorded.empty());
    const at::Tensor hidden = recorded["hidden_states"].narrow(0, 0, 1),
                     image = recorded["encoder_hidden_states_image"];
    Prediction job{.hidden = hidden,
                   .timestep = recorded["timestep"].flatten()[0].to(at::kDouble).item<double>()};
    auto context = transformer->Prepare(
        recorded["encoder_hidden_states"].narrow(0, 0, 1),
        image.defined() ? image.narrow(0, 0, transformer->config().images()) : image);
    QVERIFY2(context.ok(), context.status().ToString().c_str());
    job.contexts.assign(2, *context);
    const at::Tensor sample = recorded["sample"].narrow(0, 0, 1);
    for (const ParallelPlan& plan : Plans(transformer->config().num_heads)) {
      ThreadWorld world;
      const at::Tensor expected = plan.cfg == 2 ? at::cat({sample, sample}) : sample;
      const double error = WorstError(expected, ForwardByGroup(*transformer, job, plan, world));
      QVERIFY2(error <= 1e-4, (TextOf(plan) + ": error " + std::to_string(error)).c_str());
    }
  }

  void Forward_InBf16_IsNearOneWorkers() {
    const c10::InferenceMode guard;
    const auto loaded = WanTransformer::Load(kTinyModel + "/transformer", at::kCPU, at::kBFloat16);
    QVERIFY(loaded.ok());
    Prediction job{.hidden = Noise({1, 16, 3, 8, 8}, 1)};
    job.contexts.push_back(loaded->Prepare(Noise({1, 32, 64}, 2)).value());
    const at::Tensor alone = loaded->Forward(job.hidden, job.timestep, job.contexts[0]).value();
    for (const KeyValueWay way : {KeyValueWay::kGather, KeyValueWay::kRing}) {
      for (const int ulysses : {1, 2, 4}) {
        const ParallelPlan plan{.sequence = 4, .ulysses = ulysses, .way = way};
        ThreadWorld world;
        const double error = WorstError(alone, ForwardByGroup(*loaded, job, plan, world));
        QVERIFY2(error <= 0.02, (TextOf(plan) + ": error " + std::to_string(error)).c_str());
      }
    }
  }

  /// The formulas of token_parts.h, for all layers of a step.
  void Forward_MovesWhatTheFormulasSay() {
    const c10::InferenceMode guard;
    const TransformerConfig& config = tiny_->config();
    Prediction job{.hidden = Noise({1, 16, 3, 8, 8}, 1)};
    job.contexts.assign(2, tiny_->Prepare(Noise({1, 32, 64}, 2)).value());
    const std::size_t tokens = 3 * 4 * 4, all = tokens * static_cast<std::size_t>(config.dim()),
                      patches = tokens * 16 * 4, layers = 4;
    for (const ParallelPlan& plan : Plans(config.num_heads)) {
      ThreadWorld world;
      for (const auto& result : ForwardByGroup(*tiny_, job, plan, world)) QVERIFY(result.ok());
      const auto n = static_cast<std::size_t>(plan.sequence),
                 u = static_cast<std::size_t>(plan.ulysses),
                 cfg = static_cast<std::size_t>(plan.cfg);
      const std::size_t layer = 2 * (n / u - 1) * all + 4 * (u - 1) * all / u;
      const std::size_t expected = sizeof(float) * cfg * (layers * layer + (cfg * n - 1) * patches);
      const std::size_t moved = world.TakeBytes();
      qInfo("%s: %zu bytes", TextOf(plan).c_str(), moved);
      QCOMPARE(moved, expected);
    }
  }

  /// Ranks that computed all tokens would pass every other test.
  void Forward_CostsARankItsShare() {
    const c10::InferenceMode guard;
    Prediction job{.hidden = Noise({1, 16, 5, 32, 32}, 1)};
    job.contexts.assign(2, tiny_->Prepare(Noise({1, 64, 64}, 2)).value());
    // The least of some rounds: other processes disturb the caches.
    const auto cost = [&](const ParallelPlan& plan) {
      double least = INFINITY;
      for (int round = 0; round < 3; ++round) {
        ThreadWorld world;
        const auto seconds =
            RunWorkers<double>(plan.ranks(), [&](std::uint32_t worker) -> absl::StatusOr<double> {
              ThreadGroup group(world, FirstWorkers(plan.ranks()), static_cast<int>(worker));
              const Parallel parallel{&group, plan, Patience};
              const double before = ThreadSeconds();
              ONEPIECE_RETURN_IF_ERROR(tiny_
                                           ->Forward(job.hidden, 500, job.contexts[0],
                                                     plan.ranks() == 1 ? Parallel() : parallel)
                                           .status());
              return ThreadSeconds() - before;
            });
        double most = 0;
        for (const auto& one : seconds) most = std::max(most, one.ok() ? *one : INFINITY);
        least = std::min(least, most);
      }
      return least;
    };
    const double alone = cost({});
    for (const KeyValueWay way : {KeyValueWay::kGather, KeyValueWay::kRing}) {
      for (const int ulysses : {1, 4}) {
        for (const int sequence : {4, 8}) {
          const ParallelPlan plan{.sequence = sequence, .ulysses = ulysses, .way = way};
          const double share = cost(plan) / alone * sequence;
          qInfo("%s: %.2f of an even share of %.0f ms", TextOf(plan).c_str(), share, alone * 1000);
          // Computing everything would be `sequence` shares. The tiny model has much that is not
          // worth sharing, and ranks disturb each other on few cores.
          QVERIFY2(share < 0.6 * sequence, TextOf(plan).c_str());
        }
      }
    }
  }

  void Forward_RefusesPlansThatDoNotFit() {
    const c10::InferenceMode guard;
    Prediction job{.hidden = Noise({1, 16, 1, 2, 4}, 1)};
    job.contexts.assign(2, tiny_->Prepare(Noise({1, 32, 64}, 2)).value());
    for (const ParallelPlan& plan : {ParallelPlan{.sequence = 3}, ParallelPlan{1, 2, 3}}) {
      ThreadWorld world;  // Two tokens, four heads.
      for (const auto& result : ForwardByGroup(*tiny_, job, plan, world))
        QCOMPARE(Reason(result.status()), std::string("BAD_PLAN"));
    }
    // Two branches without guidance.
    const Run run{.transformer = *tiny_, .guidance = 1};
    ThreadWorld world;
    ThreadGroup group(world, FirstWorkers(2), 0);
    DenoiseInputs inputs = run.Inputs();
    inputs.latents = Noise(run.shape, 1);
    const auto steps = model::MakeScheduler(run.scheduler, 2).value();
    const auto refused = Denoise(
        *tiny_, *steps, inputs, [](const DenoiseStep&) { return absl::OkStatus(); },
        [&](int) -> absl::StatusOr<StepGroup> {
          return StepGroup{.parallel = {&group, {.cfg = 2}, Patience}};
        });
    QCOMPARE(Reason(refused.status()), std::string("BAD_PLAN"));
  }

  void Denoise_ByChangingMembers_IsOneWorkers_data() {
    QTest::addColumn<bool>("euler");
    QTest::addColumn<bool>("ring");
    QTest::addColumn<double>("guidance");
    QTest::newRow("unipc") << false << false << 5.0;
    QTest::newRow("unipc, ring") << false << true << 5.0;
    QTest::newRow("euler") << true << false << 5.0;
    QTest::newRow("without guidance") << false << true << 1.0;
  }
  /// The group grows, shrinks, changes its order and gets a worker back, at every step.
  void Denoise_ByChangingMembers_IsOneWorkers() {
    QFETCH(bool, euler);
    QFETCH(bool, ring);
    QFETCH(double, guidance);
    const c10::InferenceMode guard;
    Run run{.transformer = *tiny_, .guidance = guidance};
    if (euler) run.scheduler.kind = model::SchedulerConfig::Kind::kFlowMatchEuler;
    if (ring) run.way = KeyValueWay::kRing;
    const std::vector<Members> schedule = {
        {0}, {0, 1}, {0, 1, 2}, {1, 3, 2, 4}, {4, 2, 1}, {5, 2, 6, 7, 0, 1, 3, 4}, {7}, {6, 7, 0}};
    const auto alone = run.Alone();
    QVERIFY2(alone.ok(), alone.status().ToString().c_str());
    ThreadWorld world;
    const Results results = RunWorkers<at::Tensor>(
        8, [&](std::uint32_t worker) { return Work(run, schedule, world, worker); });
    for (std::uint32_t worker = 0; worker < 8; ++worker) {
      const auto& result = results[worker];
      QVERIFY2(result.ok(), result.status().ToString().c_str());
      QCOMPARE(result->defined(), IsIn(schedule.back(), worker));
      if (!result->defined()) continue;
      const double error = ErrorTo(*alone, *result);
      qInfo("worker %u: error %.1e", worker, error);
      QVERIFY(error <= kEqual);
    }
  }

  /// A worker that leaves sends nothing; one that comes gets the latents and the scheduler's state.
  void Denoise_MovesTheStateToNewcomersOnly() {
    const c10::InferenceMode guard;
    const Run run{.transformer = *tiny_};
    const auto bytes = [&](const std::vector<Members>& schedule) {
      ThreadWorld world;
      for (const auto& result : RunWorkers<at::Tensor>(
               4, [&](std::uint32_t worker) { return Work(run, schedule, world, worker); })) {
        if (!result.ok()) qWarning("%s", result.status().ToString().c_str());
      }
      return world.TakeBytes();
    };
    const Members two = {0, 1}, four = {0, 1, 2, 3};
    const std::size_t step_of_two = bytes(std::vector<Members>(8, two)) / 8,
                      step_of_four = bytes(std::vector<Members>(8, four)) / 8;
    QCOMPARE(bytes({four, four, four, four, two, two, two, two}),
             4 * step_of_four + 4 * step_of_two);
    // After four steps UniPC has three tensors besides the latents.
    const std::size_t state = 4 * sizeof(float) * 16 * 3 * 8 * 8 + 5 * sizeof(std::int32_t);
    QCOMPARE(bytes({two, two, two, two, four, four, four, four}),
             4 * step_of_four + 4 * step_of_two + 2 * state);
  }

  /// A runtime that forgets to name a newcomer must not end the process.
  void Denoise_RefusesALateStartWithoutState() {
    const c10::InferenceMode guard;
    const Run run{.transformer = *tiny_};
    DenoiseInputs inputs = run.Inputs();
    inputs.latents = Noise(run.shape, 1);
    inputs.first_step = 2;
    const auto steps = model::MakeScheduler(run.scheduler, 4).value();
    const auto late =
        Denoise(*tiny_, *steps, inputs, [](const DenoiseStep&) { return absl::OkStatus(); });
    QCOMPARE(Reason(late.status()), std::string("BAD_STATE"));
  }

  void ShareState_RefusesWhatDoesNotFit() {
    const c10::InferenceMode guard;
    ThreadWorld world;
    const auto share = [&](const std::vector<int>& newcomers, int steps_of_newcomer) {
      return RunWorkers<at::Tensor>(2, [&](std::uint32_t worker) -> absl::StatusOr<at::Tensor> {
        ThreadGroup group(world, FirstWorkers(2), static_cast<int>(worker));
        at::Tensor latents = at::ones({1, 16, 1, 2, 2});
        const auto steps = model::MakeScheduler({}, 4).value();
        ONEPIECE_RETURN_IF_ERROR(model::ShareState({&group, {}, Patience}, newcomers,
                                                   worker == 1 ? steps_of_newcomer : 0, latents,
                                                   *steps));
        return latents;
      });
    };
    for (const auto& result : share({0, 1}, 0))
      QCOMPARE(Reason(result.status()), std::string("BAD_GROUP"));
    const Results late = share({1}, 2);
    QVERIFY(late[0].ok());
    QCOMPARE(Reason(late[1].status()), std::string("BAD_STATE"));
  }

  void Decode_ByAGroup_IsOneWorkers_data() {
    QTest::addColumn<int>("ranks");
    QTest::addColumn<bool>("tiled");
    for (const int ranks : {1, 2, 3, 4, 8}) {
      QTest::addRow("%d in tiles", ranks) << ranks << true;
      QTest::addRow("%d in strips", ranks) << ranks << false;
    }
  }
  void Decode_ByAGroup_IsOneWorkers() {
    QFETCH(int, ranks);
    QFETCH(bool, tiled);
    const c10::InferenceMode guard;
    const auto vae = WanVae::Load(kTinyModel + "/vae");
    QVERIFY(vae.ok());
    const at::Tensor z = Noise({1, 16, 3, 13, 9}, 7);
    // Three by two tiles, the last ones smaller: six or eight ranks do not divide them evenly.
    const auto tiling = tiled ? std::optional(WanVae::Tiling{48, 40}) : std::nullopt;
    const auto alone = vae->Decode(z, {}, tiling);
    QVERIFY2(alone.ok(), alone.status().ToString().c_str());
    ThreadWorld world;
    std::vector<std::pair<int, int>> counted(static_cast<std::size_t>(ranks));
    const Results results =
        RunWorkers<at::Tensor>(ranks, [&](std::uint32_t worker) -> absl::StatusOr<at::Tensor> {
          ThreadGroup group(world, FirstWorkers(ranks), static_cast<int>(worker));
          const auto progress = [&](int done, int total) {
            counted[worker] = {done, total};
            return absl::OkStatus();
          };
          return vae->Decode(z, progress, tiling, {&group, {}, Patience});
        });
    const double error = WorstError(*alone, results);
    qInfo("error %.1e, %zu bytes moved, the video has %zu", error, world.TakeBytes(),
          alone->nbytes());
    QVERIFY(error <= kEqual);
    int chunks = 0;
    for (const auto& [done, total] : counted) {
      QCOMPARE(done, total);
      chunks += done;
    }
    QCOMPARE(chunks, tiled ? 3 * 6 : 3 * ranks);
  }

 private:
  static std::unique_ptr<const WanTransformer> LoadTransformer(const std::string& folder) {
    auto loaded = WanTransformer::Load(folder);
    if (!loaded.ok()) qWarning("%s", loaded.status().ToString().c_str());
    return loaded.ok() ? std::make_unique<const WanTransformer>(*std::move(loaded)) : nullptr;
  }

  std::unique_ptr<const WanTransformer> tiny_;
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::ParallelTest)
#include "parallel_test.moc"
