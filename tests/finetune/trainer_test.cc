// Tests that training is real (the loss falls), repeats bit for bit, and resumes at a checkpoint.
#include "stages/finetune/trainer.h"

#include <QtTest>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "stages/finetune/clips.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::finetune {
namespace {

namespace fs = std::filesystem;

const char kModel[] = ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v";

std::unique_ptr<Trainer> OpenTrainer(std::int64_t seed, const std::string& checkpoint = "",
                                     const std::string& model = kModel) {
  auto trainer =
      Trainer::Open({.model_dir = model, .checkpoint = checkpoint, .seed = seed, .threads = 1});
  if (!trainer.ok()) qFatal("%s", trainer.status().ToString().c_str());
  return *std::move(trainer);
}

std::vector<double> Losses(Trainer& trainer, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    const auto loss = trainer.Step([] { return false; });
    if (!loss.ok()) qFatal("%s", loss.status().ToString().c_str());
    losses.push_back(*loss);
  }
  return losses;
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

class TrainerTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void MakeClip_EveryClipIsAnother() {
    std::set<std::string> captions;
    for (std::int64_t i = 0; i < kClips; ++i) {
      const Clip clip = MakeClip(i);
      captions.insert(clip.caption);
      QVERIFY((clip.video.sizes().vec() == std::vector<std::int64_t>{1, 3, 9, 64, 64}));
      QVERIFY(clip.video.min().item<float>() >= -1 && clip.video.max().item<float>() <= 1);
      QVERIFY(clip.video.max().item<float>() > 0);  // The clip shows something,
      QVERIFY((clip.video.select(2, 0) - clip.video.select(2, 8)).abs().max().item<float>() > 0.5);
    }
    QCOMPARE(static_cast<std::int64_t>(captions.size()), kClips);
  }

  void Step_TheLossFalls() {
    const auto trainer = OpenTrainer(1);
    Losses(*trainer, 24);
    const QTemporaryDir dir, checkpoints;
    const auto folder = CheckpointFolder::Open(checkpoints.path().toStdString());
    QVERIFY(trainer->Save(*folder).ok());
    // The model with the trained weights is measured on the same draws as the model without them.
    const fs::path trained = dir.path().toStdString();
    for (const char* part : {"scheduler", "text_encoder", "tokenizer", "vae"})
      fs::copy(fs::path(kModel) / part, trained / part, fs::copy_options::recursive);
    fs::copy(TransformerFolder(folder->Latest()), trained / "transformer",
             fs::copy_options::recursive);
    const double before = Mean(Losses(*OpenTrainer(9), 3));
    const double after = Mean(Losses(*OpenTrainer(9, "", trained.string()), 3));
    qInfo("mean loss %.4f, %.4f after 24 steps", before, after);
    QVERIFY(after < 0.9 * before);
  }

  void Step_TheSameSeedGivesTheSameLosses() {
    const std::vector<double> once = Losses(*OpenTrainer(5), 2);
    QVERIFY(Losses(*OpenTrainer(5), 2) == once);
    QVERIFY(Losses(*OpenTrainer(6), 2) != once);
  }

  void Step_GoesOnFromACheckpointBitForBit() {
    const std::vector<double> whole = Losses(*OpenTrainer(2), 4);
    const QTemporaryDir dir;
    const auto folder = CheckpointFolder::Open(dir.path().toStdString());
    QVERIFY2(folder.ok(), folder.status().ToString().c_str());
    std::vector<double> parts;
    for (const int steps : {2, 1, 1}) {
      const auto trainer = OpenTrainer(2, folder->Latest());
      QCOMPARE(trainer->steps(), static_cast<std::int64_t>(parts.size()));
      for (const double loss : Losses(*trainer, steps)) parts.push_back(loss);
      const absl::Status saved = trainer->Save(*folder);
      QVERIFY2(saved.ok(), saved.ToString().c_str());
    }
    QVERIFY(parts == whole);
  }

  void Step_StoppedHasNotHappened() {
    const std::vector<double> whole = Losses(*OpenTrainer(3), 2);
    const auto trainer = OpenTrainer(3);
    QCOMPARE(Losses(*trainer, 1).front(), whole[0]);
    int asked = 0;
    QVERIFY(absl::IsCancelled(trainer->Step([&] { return ++asked == 4; }).status()));
    QCOMPARE(trainer->steps(), std::int64_t{1});
    QCOMPARE(Losses(*trainer, 1).front(), whole[1]);
  }

  void Save_TheCheckpointIsAModel() {
    const QTemporaryDir dir;
    const auto folder = CheckpointFolder::Open(dir.path().toStdString());
    const auto trainer = OpenTrainer(1);
    Losses(*trainer, 1);
    QVERIFY(trainer->Save(*folder).ok());
    const auto trained = wan::WanTransformer::Load(TransformerFolder(folder->Latest()));
    QVERIFY2(trained.ok(), trained.status().ToString().c_str());
    const auto before = wan::WanTransformer::Load(std::string(kModel) + "/transformer");
    const at::Tensor text = at::ones({1, 4, 64}), latents = at::ones({1, 16, 1, 4, 4});
    const auto predict = [&](const wan::WanTransformer& model) {
      return model.Forward(latents, 500, model.Prepare(text).value()).value();
    };
    const double change = (predict(*trained) - predict(*before)).abs().max().item<double>();
    QVERIFY(change > 0 && change < 1);
  }

  void Open_RefusesAnotherRunsCheckpoint() {
    const QTemporaryDir dir;
    const auto folder = CheckpointFolder::Open(dir.path().toStdString());
    const auto trainer = OpenTrainer(1);
    QVERIFY(trainer->Save(*folder).ok());
    const auto other =
        Trainer::Open({.model_dir = kModel, .checkpoint = folder->Latest(), .seed = 2});
    QCOMPARE(Reason(other.status()), std::string("OTHER_RUN"));
    QVERIFY(absl::IsUnimplemented(
        Trainer::Open({.model_dir = ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-i2v"})
            .status()));
  }

  void Folder_KeepsWhatIsWholeAndDropsWhatIsNot() {
    const QTemporaryDir dir;
    const std::string path = dir.path().toStdString();
    const Tensors weights = {{"w", at::ones({2, 3})}};
    {
      const auto folder = CheckpointFolder::Open(path);
      QCOMPARE(folder->Latest(), std::string());
      for (const std::int64_t step : {9, 10, 10}) {
        Checkpoint checkpoint{.step = step, .seed = 4, .mean = weights, .square = weights};
        QVERIFY(folder->Write(checkpoint, weights, "{}").ok());
      }
      QVERIFY(folder->Latest().ends_with("step-00000010"));
      QVERIFY(!fs::exists(path + "/step-00000009"));
      const auto read = ReadCheckpoint(folder->Latest());
      QVERIFY2(read.ok(), read.status().ToString().c_str());
      QCOMPARE(read->step, std::int64_t{10});
      QCOMPARE(read->seed, std::int64_t{4});
      QVERIFY(at::equal(read->mean.at("w"), weights.at("w")));
      QCOMPARE(Reason(CheckpointFolder::Open(path).status()), std::string("CHECKPOINTS_IN_USE"));
    }
    // A kill in the middle of a write leaves this.
    fs::create_directories(path + "/unfinished/transformer");
    const auto folder = CheckpointFolder::Open(path);
    QVERIFY(folder.ok());
    QVERIFY(!fs::exists(path + "/unfinished"));
    QVERIFY(folder->Latest().ends_with("step-00000010"));
    std::ofstream(folder->Latest() + "/optimizer.safetensors") << "damaged";
    QVERIFY(absl::IsInvalidArgument(ReadCheckpoint(folder->Latest()).status()));
  }

  void Folder_SaysWhereItCannotWrite() {
    QCOMPARE(Reason(CheckpointFolder::Open("/proc/none").status()), std::string("CANNOT_WRITE"));
  }
};

}  // namespace onepiece::finetune

ONEPIECE_TEST(onepiece::finetune::TrainerTest)
#include "trainer_test.moc"
