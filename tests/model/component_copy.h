// Makes component folders that tests may damage.
#pragma once

#include <QTemporaryDir>
#include <QtTest>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "cluster/base/status.h"
#include "tests/tensor/safetensors_bytes.h"

namespace onepiece::model {

inline nlohmann::json ReadJson(const std::string& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

/// A copy of a component, which a test may damage.
class ComponentCopy {
 public:
  explicit ComponentCopy(const std::string& folder) {
    using std::filesystem::copy_options;
    std::filesystem::copy(folder, path(),
                          copy_options::recursive | copy_options::overwrite_existing);
  }
  [[nodiscard]] std::string path() const { return dir_.path().toStdString(); }
  void Patch(const nlohmann::json& patch, const std::string& file = "config.json") const {
    nlohmann::json config = ReadJson(path() + "/" + file);
    config.merge_patch(patch);
    Write(file, config.dump());
  }
  void Write(const std::string& file, const std::string& text) const {
    tensor::WriteFile(path() + "/" + file, text);
  }

 private:
  QTemporaryDir dir_;
};

inline void CompareError(const absl::Status& status, absl::StatusCode code, const char* says) {
  QCOMPARE(status.code(), code);
  QVERIFY2(base::Message(status).find(says) != std::string::npos, base::Message(status).c_str());
}

}  // namespace onepiece::model
