// Compares image preprocessing with Pillow and numpy. tests/model/goldens/images/record.py made the
// arrays.
#include "stages/model/image_processor.h"

#include <QtTest>
#include <string>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/tensor/torch_convert.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

media::Image Grey(std::int64_t width, std::int64_t height) {
  return {width, height,
          std::vector<std::byte>(static_cast<std::size_t>(width * height * 3), std::byte{90})};
}

}  // namespace

class ImageProcessorTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const auto file = tensor::SafetensorsFile::Open(std::string(ONEPIECE_SOURCE_DIR) +
                                                    "/tests/model/goldens/images/io.safetensors");
    QVERIFY2(file.ok(), base::Message(file.status()).c_str());
    file_ = *file;
  }

  void Resample_IsPillowsBitForBit() {
    int compared = 0;
    for (const tensor::TensorEntry& entry : file_->index().tensors) {
      const auto parts = Split(entry.name, '.');  // resized.WxH.FILTER.WxH
      if (parts[0] != "resized") continue;
      const auto to = Split(parts[3], 'x');
      const auto resized = Resample(Picture(parts[1]), std::stoll(to[0]), std::stoll(to[1]),
                                    static_cast<ResampleFilter>(std::stoi(parts[2])));
      QVERIFY2(resized.ok(), base::Message(resized.status()).c_str());
      const at::Tensor expected = *tensor::ViewTensor(file_, entry);
      QCOMPARE(resized->rgb.size(), static_cast<std::size_t>(expected.numel()));
      QVERIFY2(std::memcmp(resized->rgb.data(), expected.data_ptr(), resized->rgb.size()) == 0,
               entry.name.c_str());
      ++compared;
    }
    QCOMPARE(compared, 51);
  }

  void Process_IsTheReferences() {
    int compared = 0;
    for (const tensor::TensorEntry& entry : file_->index().tensors) {
      const auto parts = Split(entry.name, '.');  // processed.WxH.CONFIG
      if (parts[0] != "processed") continue;
      const auto config = ImageProcessor::ParseConfig(
          nlohmann::json::parse(file_->index().metadata.at("config." + parts[2])));
      QVERIFY2(config.ok(), base::Message(config.status()).c_str());
      const auto pixels = ImageProcessor(*config).Process(Picture(parts[1]));
      QVERIFY2(pixels.ok(), base::Message(pixels.status()).c_str());
      CompareTensor(entry, *pixels);
      ++compared;
    }
    QCOMPARE(compared, 30);
  }

  void FrameOfImage_IsTheReferences() {
    int compared = 0;
    for (const tensor::TensorEntry& entry : file_->index().tensors) {
      const auto parts = Split(entry.name, '.');  // frame.WxH
      if (parts[0] != "frame") continue;
      const auto frame = FrameOfImage(Picture(parts[1]), 16, 8);
      QVERIFY2(frame.ok(), base::Message(frame.status()).c_str());
      CompareTensor(entry, *frame);
      ++compared;
    }
    QCOMPARE(compared, 6);
  }

  void Resample_RefusesWhatIsTooLarge() {
    const media::Image image = Grey(2, 3);
    for (const auto& [width, height] :
         {std::pair<std::int64_t, std::int64_t>{0, 4}, {4, 0}, {16385, 1}, {16384, 16384}}) {
      const auto status = Resample(image, width, height, ResampleFilter::kBicubic).status();
      QCOMPARE(base::GetReason(status).reason, std::string("IMAGE_TOO_LARGE"));
    }
    // Resizing the short edge of a line of pixels makes the other edge enormous.
    const ImageProcessor processor(*ImageProcessor::ParseConfig(nlohmann::json::object()));
    QCOMPARE(base::GetReason(processor.Process(Grey(2000, 1)).status()).reason,
             std::string("IMAGE_TOO_LARGE"));
    QVERIFY(processor.Process(Grey(1, 1)).ok());
  }

  void Resample_OfALargeImage() {
    const auto small = Resample(Grey(5000, 4000), 224, 224, ResampleFilter::kBicubic);
    QVERIFY(small.ok());
    QVERIFY(small->rgb == Grey(224, 224).rgb);
  }

  void ParseConfig_TakesTheOldFormOfSizes() {
    const auto config =
        ImageProcessor::ParseConfig(nlohmann::json{{"size", 30}, {"crop_size", 20}});
    QVERIFY2(config.ok(), base::Message(config.status()).c_str());
    QCOMPARE(config->shortest_edge, 30);
    QCOMPARE(config->crop_height, 20);
    QCOMPARE(config->crop_width, 20);
  }

  void ParseConfig_NamesTheFieldThatIsWrong_data() {
    QTest::addColumn<QByteArray>("json");
    QTest::addColumn<QString>("field");
    QTest::newRow("filter") << QByteArray("{\"resample\": 0}") << "resample";
    QTest::newRow("size 0") << QByteArray("{\"size\": {\"shortest_edge\": 0}}") << "size";
    QTest::newRow("no width") << QByteArray("{\"size\": {\"height\": 5}}") << "size";
    QTest::newRow("crop") << QByteArray("{\"crop_size\": {\"height\": 5, \"width\": -1}}")
                          << "crop_size";
    QTest::newRow("mean") << QByteArray("{\"image_mean\": [1, 2]}") << "image_mean";
    QTest::newRow("std") << QByteArray("{\"image_std\": [1, 0, 1]}") << "image_std";
  }
  void ParseConfig_NamesTheFieldThatIsWrong() {
    QFETCH(QByteArray, json);
    QFETCH(QString, field);
    const auto status =
        ImageProcessor::ParseConfig(nlohmann::json::parse(json.toStdString())).status();
    QCOMPARE(base::GetReason(status).metadata.at("field"), field.toStdString());
  }

 private:
  [[nodiscard]] media::Image Picture(const std::string& name) const {
    const at::Tensor pixels = *tensor::ViewTensor(file_, *file_->index().Find("image." + name));
    const auto* bytes = static_cast<const std::byte*>(pixels.data_ptr());
    return {pixels.size(1), pixels.size(0), {bytes, bytes + pixels.numel()}};
  }
  void CompareTensor(const tensor::TensorEntry& entry, const at::Tensor& made) const {
    const at::Tensor expected = *tensor::ViewTensor(file_, entry);
    QVERIFY2(made.sizes() == expected.sizes(), entry.name.c_str());
    QVERIFY2(at::allclose(made, expected, 1e-6, 1e-6), entry.name.c_str());
  }

  std::shared_ptr<const tensor::SafetensorsFile> file_;
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::ImageProcessorTest)
#include "image_processor_test.moc"
