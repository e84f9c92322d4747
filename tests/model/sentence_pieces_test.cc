#include "stages/model/sentence_pieces.h"

#include <QtTest>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "cluster/base/ids.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

using Type = SentencePieces::Type;

const char kModel[] = ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v/tokenizer/spiece.model";

std::uint64_t Seed() {
  const QByteArray seed = qgetenv("ONEPIECE_SEED");
  return seed.isEmpty() ? base::RandomU64() : seed.toULongLong();
}

std::string ReadFile(const QString& path) {
  QFile file(path);
  return file.open(QIODevice::ReadOnly) ? file.readAll().toStdString() : "";
}

std::string Varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string BytesField(int number, std::string_view bytes) {
  return Varint(static_cast<std::uint64_t>(number) << 3 | 2) + Varint(bytes.size()) +
         std::string(bytes);
}

std::string VarintField(int number, std::uint64_t value) {
  return Varint(static_cast<std::uint64_t>(number) << 3) + Varint(value);
}

std::string PieceField(std::string_view text, float score, Type type) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &score, 4);
  return BytesField(1, BytesField(1, text) + std::string("\x15") + bytes +
                           VarintField(3, static_cast<std::uint64_t>(type)));
}

/// Returns a model's normalizer_spec as raw bytes: the rest of the file after its pieces.
std::string NormalizerOf(std::string_view model) {
  std::size_t i = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; i < model.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(model[i++]);
      value |= (byte & 0x7FULL) << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (i < model.size()) {
    const std::uint64_t tag = varint(), length = varint();
    if (tag == (3 << 3 | 2)) return std::string(model.substr(i, length));
    i += length;
  }
  return "";
}

class RandomTexts {
 public:
  explicit RandomTexts(std::uint64_t seed) : random_(seed) {}

  std::string Next() {
    static const std::vector<std::string> kWords = {
        "a",  "red",     "circle", "MOVING", "Right", "on",      "dark", " ",  "  ", "\t", "\n",
        "é",  "e\u0301", "ﬁ",      "Ａ",     "ｶﾞ",    "\u00a0",  "①",    "ß",  "İ",  "▁",  "🦀",
        "红", "</s>",    "<unk>",  "\u200b", "ab",    "\u0e33é", "ba",   "xx", ".",  "0",  "\x7f"};
    std::string text;
    for (int count = Below(12); count > 0; --count) {
      switch (Below(8)) {
        case 0:
          text += static_cast<char>(1 + Below(255));  // May be invalid UTF-8.
          break;
        case 1:
          text += QString::fromUcs4(std::u32string(1, Character()).data(), 1).toStdString();
          break;
        default:
          text += kWords[static_cast<std::size_t>(Below(static_cast<int>(kWords.size())))];
          if (Below(2) == 0) text += ' ';
      }
    }
    return text;
  }
  int Below(int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random_); }
  float Score() { return -static_cast<float>(Below(1000)) / 64; }

 private:
  char32_t Character() {
    const int character = 1 + Below(0x2FFFF);
    return character >= 0xD800 && character <= 0xDFFF ? U'?' : static_cast<char32_t>(character);
  }
  std::mt19937_64 random_;
};

/// Returns the ids of every text by the sentencepiece library, or nothing if it failed.
std::vector<std::vector<int>> AskLibrary(const QString& model,
                                         const std::vector<std::string>& texts) {
  QProcess oracle;
  oracle.start(ONEPIECE_BINARY_DIR "/tests/sentencepiece_oracle", {model});
  for (const std::string& text : texts)
    oracle.write(text.c_str(), static_cast<qint64>(text.size()) + 1);
  oracle.closeWriteChannel();
  if (!oracle.waitForFinished(60'000) || oracle.exitCode() != 0) return {};
  std::istringstream lines(oracle.readAllStandardOutput().toStdString());
  std::vector<std::vector<int>> answers;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream numbers(line);
    answers.emplace_back();
    for (int id = 0; numbers >> id;) answers.back().push_back(id);
  }
  return answers;
}

QString Words(const SentencePieces& pieces, const std::vector<int>& ids) {
  QStringList words;
  for (const int id : ids) {
    const std::string_view text = pieces.piece(id);
    words += QString::fromUtf8(text.data(), static_cast<qsizetype>(text.size()));
  }
  return words.join(' ');
}

void CompareWithLibrary(const QString& model, RandomTexts& random, int count) {
  const auto pieces = SentencePieces::Parse(ReadFile(model));
  QVERIFY2(pieces.ok(), pieces.status().ToString().c_str());
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) texts.push_back(random.Next());
  const auto expected = AskLibrary(model, texts);
  QCOMPARE(expected.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::vector<int> ids = pieces->Encode(texts[i]);
    QVERIFY2(ids == expected[i], (Words(*pieces, ids) + " for " + Words(*pieces, expected[i]) +
                                  " of " + QByteArray::fromStdString(texts[i]).toPercentEncoding())
                                     .toUtf8());
  }
}

}  // namespace

class SentencePiecesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Encode_AgreesWithTheLibraryOnTheShippedModel() {
    const std::uint64_t seed = Seed();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    RandomTexts random(seed);
    CompareWithLibrary(kModel, random, 20'000);
  }

  // Random small models have every type of piece, byte fallback and the normaliser's options.
  void Encode_AgreesWithTheLibraryOnRandomModels() {
    const std::uint64_t seed = Seed();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    RandomTexts random(seed);
    const std::string normalizer = NormalizerOf(ReadFile(kModel));
    QVERIFY(normalizer.size() > 1000);
    QTemporaryDir dir;
    for (int round = 0; round < 20; ++round) {
      const QString path = dir.filePath(QString::number(round));
      QFile file(path);
      QVERIFY(file.open(QIODevice::WriteOnly));
      file.write(QByteArray::fromStdString(RandomModel(random, normalizer)));
      file.close();
      CompareWithLibrary(path, random, 1000);
      if (QTest::currentTestFailed()) return;
    }
  }

  void Parse_SurvivesTruncation() {
    const std::string model = ReadFile(kModel);
    QVERIFY(SentencePieces::Parse(model).ok());
    int refused = 0;
    for (std::size_t size = 0; size < model.size(); size += 1 + size / 50) {
      const auto pieces = SentencePieces::Parse(std::string_view(model).substr(0, size));
      if (!pieces.ok()) {
        ++refused;
        continue;
      }
      // The cut is between two fields.
      for (const int id : pieces->Encode("a red circle")) QVERIFY(id >= 0 && id < pieces->size());
    }
    QVERIFY(refused > 50);
  }

  void Parse_SurvivesFlippedBits() {
    const std::uint64_t seed = Seed();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    RandomTexts random(seed);
    const std::string model = ReadFile(kModel);
    int refused = 0;
    for (int i = 0; i < 300; ++i) {
      std::string damaged = model;
      for (int flips = 0; flips < 20; ++flips) {
        const auto at = static_cast<std::size_t>(random.Below(static_cast<int>(model.size())));
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << random.Below(8)));
      }
      // The head holds the pieces, and its fields are all small.
      damaged[static_cast<std::size_t>(random.Below(2000))] ^=
          static_cast<char>(1 << random.Below(8));
      const auto pieces = SentencePieces::Parse(damaged);
      if (!pieces.ok()) {
        ++refused;
        continue;
      }
      for (const int id : pieces->Encode(random.Next())) QVERIFY(id >= 0 && id < pieces->size());
    }
    QVERIFY(refused > 0);
  }

 private:
  static std::string RandomModel(RandomTexts& random, const std::string& normalizer) {
    std::string model = PieceField("<pad>", 0, Type::kControl) +
                        PieceField("</s>", 0, Type::kControl) +
                        PieceField("<unk>", 0, Type::kUnknown);
    const bool byte_fallback = random.Below(2) == 0;
    for (int byte = 0; byte_fallback && byte < 256; ++byte) {
      const QByteArray name =
          QByteArray("<0x") + QByteArray::number(byte, 16).toUpper().rightJustified(2, '0') + ">";
      model += PieceField(name.toStdString(), 0, Type::kByte);
    }
    const char* const texts[] = {"\u2581", "a",       "b",   "ab", "\u2581a", "red", "\u2581red",
                                 "circle", "ci",      "r",   "e",  "é",       "红",  "i",
                                 "right",  "\u2581r", "aba", "xx", "x",       ".",   "moving"};
    for (const char* text : texts) {
      static constexpr Type kTypes[] = {Type::kNormal, Type::kNormal,      Type::kNormal,
                                        Type::kNormal, Type::kUserDefined, Type::kUnused};
      model += PieceField(text, random.Score(), kTypes[random.Below(6)]);
    }
    model += PieceField("zz", -1, Type::kNormal);  // At least one that is normal.
    model += BytesField(2, VarintField(3, 1) + VarintField(35, byte_fallback ? 1 : 0));
    std::string options = random.Below(3) == 0 ? "" : normalizer;
    for (const int option : {3, 4, 5}) {
      if (random.Below(3) == 0)
        options += VarintField(option, static_cast<std::uint64_t>(random.Below(2)));
    }
    return model + BytesField(3, options);
  }
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::SentencePiecesTest)
#include "sentence_pieces_test.moc"
