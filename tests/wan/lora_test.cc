#include "stages/model/lora.h"

#include <QtTest>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/message/message.h"
#include "stages/runtime/stage_runner.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/safetensors.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/merged_transformers.h"
#include "stages/wan/stages.h"
#include "stages/wan/transformer_3d.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::wan {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, at::Tensor>;

const std::string kBase = ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v/transformer";
constexpr char kWeights[] = "/diffusion_pytorch_model.safetensors";
constexpr std::int64_t kDim = 128, kRank = 4;

at::Tensor Random(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::detail::createCPUGenerator(seed)) * 0.1;
}

void WriteSafetensors(const std::string& path, const Tensors& tensors,
                      const std::map<std::string, std::string>& metadata = {}) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor flat = tensor.to(at::kFloat).contiguous();
    const std::size_t begin = data.size();
    data.append(static_cast<const char*>(flat.data_ptr()), flat.nbytes());
    header[name] = {
        {"dtype", "F32"},
        {"shape", std::vector<std::int64_t>(tensor.sizes().begin(), tensor.sizes().end())},
        {"data_offsets", {begin, data.size()}}};
  }
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << text << data;
}

Tensors ReadSafetensors(const std::string& path) {
  const auto file = *tensor::SafetensorsFile::Open(path);
  Tensors tensors;
  for (const auto& entry : file->index().tensors) {
    tensors[entry.name] = tensor::LoadTensor(file, entry, at::kFloat, at::kCPU)->clone();
  }
  return tensors;
}

/// Returns halves of an adapter for the modules, in PEFT's naming.
Tensors Halves(const std::vector<std::string>& modules, std::uint64_t seed) {
  Tensors tensors;
  for (const auto& module : modules) {
    tensors["transformer." + module + ".lora_A.weight"] = Random({kRank, kDim}, seed++);
    tensors["transformer." + module + ".lora_B.weight"] = Random({kDim, kRank}, seed++);
  }
  return tensors;
}

at::Tensor Compute(const WanTransformer& transformer) {
  const auto context = transformer.Prepare(Random({1, 7, 64}, 1));
  return *transformer.Forward(Random({1, 16, 2, 4, 6}, 2), 500, *context);
}

double Distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

}  // namespace

class LoraTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    tensor::SetComputeThreads(1);
    folder_ = std::make_unique<QTemporaryDir>();
  }

  /// Compares the product's merged weights with weights that the test merged itself.
  void Merge_IsWhatMergedWeightsCompute_data() {
    QTest::addColumn<QString>("naming");
    for (const char* naming :
         {"peft", "peft default", "bare", "down/up", "base_model", "metadata"}) {
      QTest::newRow(naming) << naming;
    }
  }
  void Merge_IsWhatMergedWeightsCompute() {
    QFETCH(QString, naming);
    const std::string module = "blocks.1.attn1.to_q";
    const at::Tensor a = Random({kRank, kDim}, 3), b = Random({kDim, kRank}, 4);
    double alpha = 2;
    Tensors adapter;
    std::map<std::string, std::string> metadata;
    if (naming == "peft" || naming == "metadata") {
      adapter = {{"transformer." + module + ".lora_A.weight", a},
                 {"transformer." + module + ".lora_B.weight", b}};
      if (naming == "peft") alpha = kRank;  // The file does not say otherwise.
      metadata["lora_adapter_metadata"] =
          naming == "peft" ? "{}" : "{\"transformer.r\": 4, \"transformer.lora_alpha\": 2}";
    } else if (naming == "peft default" || naming == "base_model") {
      const std::string prefix = naming == "base_model" ? "base_model.model." : "transformer.";
      const std::string name = naming == "base_model" ? "" : ".default";
      adapter = {{prefix + module + ".lora_A" + name + ".weight", a},
                 {prefix + module + ".lora_B" + name + ".weight", b},
                 {prefix + module + ".alpha", at::full({}, alpha)}};
    } else {
      const bool old = naming == "down/up";
      adapter = {{module + (old ? ".lora_down.weight" : ".lora_A.weight"), a},
                 {module + (old ? ".lora_up.weight" : ".lora_B.weight"), b},
                 {module + ".alpha", at::full({1}, alpha)}};
    }
    WriteSafetensors(Path("lora.safetensors"), adapter, metadata);

    Tensors weights = ReadSafetensors(kBase + kWeights);
    weights[module + ".weight"] += 0.7 * (alpha / kRank) * at::matmul(b, a);
    const auto expected = Load(MergedFolder(weights), {});
    const auto lora = model::LoraAdapter::Open(Path("lora.safetensors"));
    QVERIFY2(lora.ok(), lora.status().ToString().c_str());
    const auto merged = Load(kBase, model::MergeLoras({{*lora, 0.7}}));
    QVERIFY(expected.ok() && merged.ok());
    QVERIFY(Distance(Compute(*merged), Compute(*expected)) < 1e-6);
    QVERIFY(Distance(Compute(*merged), Compute(*Load(kBase, {}))) > 1e-4);
  }

  void Merge_TakesSeveral() {
    WriteSafetensors(Path("one.safetensors"),
                     Halves({"blocks.0.attn1.to_q", "blocks.2.attn2.to_out.0"}, 10));
    WriteSafetensors(Path("two.safetensors"),
                     Halves({"blocks.0.attn1.to_q", "blocks.3.attn2.to_k"}, 20));
    Tensors weights = ReadSafetensors(kBase + kWeights);
    const std::vector<std::tuple<std::string, std::uint64_t, double>> changes = {
        {"blocks.0.attn1.to_q", 10, 1.0},
        {"blocks.2.attn2.to_out.0", 12, 1.0},
        {"blocks.0.attn1.to_q", 20, -0.5},
        {"blocks.3.attn2.to_k", 22, -0.5}};
    for (const auto& [module, seed, scale] : changes) {
      weights[module + ".weight"] +=
          scale * at::matmul(Random({kDim, kRank}, seed + 1), Random({kRank, kDim}, seed));
    }
    const auto one = model::LoraAdapter::Open(Path("one.safetensors"));
    const auto two = model::LoraAdapter::Open(Path("two.safetensors"));
    QVERIFY(one.ok() && two.ok());
    const auto merged = Load(kBase, model::MergeLoras({{*one, 1.0}, {*two, -0.5}}));
    QVERIFY(merged.ok());
    QVERIFY(Distance(Compute(*merged), Compute(*Load(MergedFolder(weights), {}))) < 1e-6);
  }

  void CheckFit_NamesTheModulesOfAnotherModel() {
    const auto config = Load(kBase, {})->config();
    WriteSafetensors(Path("other.safetensors"), Halves({"blocks.9.attn1.to_q"}, 1));
    const auto other = model::LoraAdapter::Open(Path("other.safetensors"));
    QVERIFY(other.ok());
    const absl::Status unknown = (*other)->CheckFit(WanTransformer::Tensors(config));
    QCOMPARE(Reason(unknown), std::string("BAD_LORA"));
    QVERIFY(unknown.message().find("blocks.9.attn1.to_q.weight") != absl::string_view::npos);

    WriteSafetensors(Path("shape.safetensors"),
                     {{"blocks.0.ffn.net.0.proj.lora_A.weight", Random({kRank, kDim}, 1)},
                      {"blocks.0.ffn.net.0.proj.lora_B.weight", Random({kDim, kRank}, 2)}});
    const auto shape = model::LoraAdapter::Open(Path("shape.safetensors"));
    QVERIFY(shape.ok());
    const absl::Status misfit = (*shape)->CheckFit(WanTransformer::Tensors(config));
    QVERIFY2(misfit.message().find("[384, 128]") != absl::string_view::npos,
             misfit.ToString().c_str());
  }

  void Stage_TakesAdaptersByName() {
    const std::string model = Path("model");
    fs::create_directories(model + "/loras");
    for (const auto& entry : fs::directory_iterator(fs::path(kBase).parent_path()))
      fs::copy(entry.path(), fs::path(model) / entry.path().filename(),
               fs::copy_options::recursive);
    WriteSafetensors(model + "/loras/style.safetensors", Halves({"blocks.0.attn1.to_q"}, 1));
    WriteSafetensors(model + "/loras/other.safetensors", Halves({"blocks.9.attn1.to_q"}, 1));
    const auto stage = MakeDiffusionStage();
    QVERIFY(stage->Load({.model_dir = model, .threads = 1}).ok());
    const auto run = [&](const char* loras) {
      message::Message job;
      job.header.deadline = base::SystemClock().Now() + std::chrono::hours(1);
      job.parameters = {{"seed", std::int64_t{3}},    {"steps", std::int64_t{2}},
                        {"guidance_scale", 1.0},      {"width", std::int64_t{32}},
                        {"height", std::int64_t{32}}, {"num_frames", std::int64_t{1}},
                        {"loras", std::string(loras)}};
      for (const char* name : {"prompt_embeds", "negative_prompt_embeds"})
        job.artifacts.push_back(*tensor::ToArtifact(name, Random({1, 7, 64}, 1)));
      return runtime::RunStage(*stage, job, {});
    };
    const auto plain = run(""), styled = run("style:0.5"), again = run("style:0.5"),
               off = run("style:0");
    QVERIFY2(styled.ok(), styled.status().ToString().c_str());
    QVERIFY(plain.ok() && again.ok() && off.ok());
    QVERIFY(styled->front().data.text() != plain->front().data.text());
    QVERIFY(styled->front().data.text() == again->front().data.text());
    QVERIFY(off->front().data.text() == plain->front().data.text());
    QCOMPARE(Reason(run("nobody").status()), std::string("BAD_PARAMETER"));
    QCOMPARE(Reason(run("style,other").status()), std::string("BAD_LORA"));
  }

  void MergedTransformers_KeepWhatTheBudgetHolds() {
    const std::int64_t bytes = Load(kBase, {})->weight_bytes();
    MergedTransformers cache(2 * bytes);
    int merges = 0;
    const auto get = [&](const char* key) {
      return *cache.Get(key, bytes, [&] {
        ++merges;
        return Load(kBase, {});
      });
    };
    const auto a = get("a");
    QCOMPARE(get("a"), a);
    QCOMPARE(merges, 1);
    get("b");
    get("a");  // Now b is the oldest.
    get("c");
    QCOMPARE(get("a"), a);
    QCOMPARE(merges, 3);
    get("b");
    QCOMPARE(merges, 4);
    const auto stats = cache.stats();
    QCOMPARE(stats.evictions, std::int64_t{2});
    QCOMPARE(stats.bytes, 2 * bytes);
    QCOMPARE(stats.hits, std::int64_t{3});
  }

  void MergedTransformers_KeepTheLastOneWhateverTheBudget() {
    MergedTransformers cache(1);
    int merges = 0;
    for (int i = 0; i < 2; ++i) {
      QVERIFY(cache
                  .Get("a", 1000,
                       [&] {
                         ++merges;
                         return Load(kBase, {});
                       })
                  .ok());
    }
    QCOMPARE(merges, 1);
    const auto failed = cache.Get(
        "b", 0, []() -> absl::StatusOr<WanTransformer> { return absl::InternalError("no"); });
    QCOMPARE(failed.status().code(), absl::StatusCode::kInternal);
    QCOMPARE(cache.stats().entries, std::int64_t{0});  // The cache made room for it.
  }

 private:
  std::string Path(const char* name) const { return folder_->path().toStdString() + "/" + name; }

  static absl::StatusOr<WanTransformer> Load(const std::string& dir,
                                             const model::WeightChange& change) {
    return WanTransformer::Load(dir, at::kCPU, at::kFloat, change);
  }

  std::string MergedFolder(const Tensors& weights) const {
    const std::string dir = Path("merged");
    fs::create_directory(dir);
    fs::copy_file(kBase + "/config.json", dir + "/config.json");
    WriteSafetensors(dir + kWeights, weights);
    return dir;
  }

  std::unique_ptr<QTemporaryDir> folder_;
};

}  // namespace onepiece::wan

ONEPIECE_TEST(onepiece::wan::LoraTest)
#include "lora_test.moc"
