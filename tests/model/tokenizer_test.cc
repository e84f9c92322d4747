#include "stages/model/tokenizer.h"

#include <QtTest>
#include <chrono>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "stages/model/prompt_cleaning.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

const char kTokenizerDir[] = ONEPIECE_SOURCE_DIR "/resources/models/tiny-wan-t2v/tokenizer";
constexpr int kLength = 512;

using Ids = std::vector<std::int64_t>;

}  // namespace

class TokenizerTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // The expected texts are those of Python's html.unescape.
  void UnescapeHtml_FollowsHtml5_data() {
    QTest::addColumn<QString>("text");
    QTest::addColumn<QString>("expected");
    QTest::newRow("plain") << "a < b & c"
                           << "a < b & c";
    QTest::newRow("named") << "&lt;b&gt; &eacute;&hearts;"
                           << "<b> é♥";
    QTest::newRow("two characters") << "&NotEqualTilde;" << QString::fromUtf8("\u2242\u0338");
    QTest::newRow("longest name") << "&CounterClockwiseContourIntegral;"
                                  << "∳";
    QTest::newRow("no semicolon") << "&eacutex &amp&lt"
                                  << "éx &<";
    QTest::newRow("longest prefix") << "&notit; &notin; &no;"
                                    << "¬it; ∉ &no;";
    QTest::newRow("needs a semicolon") << "&hearts &hellip"
                                       << "&hearts &hellip";
    QTest::newRow("unknown") << "&nosuchthing; &; & &&"
                             << "&nosuchthing; &; & &&";
    QTest::newRow("once only") << "&amp;amp;lt;"
                               << "&amp;lt;";
    QTest::newRow("decimal") << "&#65;&#066&#x1F600;" << QString::fromUtf8("AB\U0001F600");
    QTest::newRow("hexadecimal") << "&#x41;&#X42 &#x;&#;"
                                 << "AB &#x;&#;";
    QTest::newRow("windows-1252") << "&#128;&#x99;"
                                  << "€™";
    QTest::newRow("not characters") << "a&#1;b&#xFFFE;c&#11;d&#127;"
                                    << "abcd";
    QTest::newRow("out of range") << "&#xD800;&#1114112;&#99999999999999999999;"
                                  << QString::fromUtf8("\uFFFD\uFFFD\uFFFD");
  }
  void UnescapeHtml_FollowsHtml5() {
    QFETCH(QString, text);
    QFETCH(QString, expected);
    QCOMPARE(QString::fromStdString(UnescapeHtml(text.toStdString())), expected);
  }

  void CleanPrompt_Cleans_data() {
    QTest::addColumn<QString>("text");
    QTest::addColumn<QString>("expected");
    QTest::newRow("empty") << ""
                           << "";
    QTest::newRow("blank") << " \t\n\u3000"
                           << "";
    QTest::newRow("composes") << QString::fromUtf8("cafe\u0301") << QString::fromUtf8("caf\u00e9");
    QTest::newRow("collapses") << QString::fromUtf8("  a\u00a0 red\r\n\x1c circle\u2028")
                               << "a red circle";
    QTest::newRow("unescapes twice") << "&amp;lt;b&amp;gt; &amp;amp;amp;"
                                     << "<b> &amp;";
    QTest::newRow("escaped space") << "&nbsp;&nbsp;red&#32;"
                                   << "red";
    QTest::newRow("any script") << "红色的圆 दायाँ 🦀 العربية"
                                << "红色的圆 दायाँ 🦀 العربية";
  }
  void CleanPrompt_Cleans() {
    QFETCH(QString, text);
    QFETCH(QString, expected);
    const auto cleaned = CleanPrompt(text.toStdString());
    QVERIFY2(cleaned.ok(), cleaned.status().ToString().c_str());
    QCOMPARE(QString::fromStdString(*cleaned), expected);
  }

  void CleanPrompt_RefusesWhatIsNotUtf8() {
    for (const char* text : {"\xff", "a\xc3", "\xed\xa0\x80", "\xc0\x80", "\xf5\x80\x80\x80"}) {
      const auto cleaned = CleanPrompt(text);
      QCOMPARE(cleaned.status().code(), absl::StatusCode::kInvalidArgument);
      QCOMPARE(base::GetReason(cleaned.status()).reason, std::string("BAD_PROMPT"));
    }
  }

  void CleanPrompt_RefusesTheHuge() {
    QVERIFY(CleanPrompt(std::string(kMaxPromptBytes, 'x')).ok());
    QCOMPARE(CleanPrompt(std::string(kMaxPromptBytes + 1, 'x')).status().code(),
             absl::StatusCode::kInvalidArgument);
  }

  void Encode_AppendsEos() {
    const auto tokenizer = Tokenizer::Load(kTokenizerDir);
    QVERIFY2(tokenizer.ok(), tokenizer.status().ToString().c_str());
    QCOMPARE(tokenizer->size(), 160);
    QVERIFY(tokenizer->Encode("", kLength) == Ids{1});
    const Ids ids = tokenizer->Encode("a red circle moving right", kLength);
    QCOMPARE(ids.size(), std::size_t{6});
    QCOMPARE(ids.back(), 1);
    const auto cleaned = CleanPrompt("  A RED&nbsp;circle\tmoving right ");
    QVERIFY(cleaned.ok());
    QVERIFY(tokenizer->Encode(*cleaned, kLength) == ids);
  }

  void Encode_TruncatesWithTheEos() {
    const auto tokenizer = Tokenizer::Load(kTokenizerDir);
    QVERIFY(tokenizer.ok());
    const Ids whole = tokenizer->Encode("a red circle moving right", kLength);
    QVERIFY(tokenizer->Encode("a red circle moving right", 6) == whole);
    const Ids cut = tokenizer->Encode("a red circle moving right", 5);
    QVERIFY((cut == Ids{whole[0], whole[1], whole[2], whole[3], 1}));
    QVERIFY(tokenizer->Encode("a red circle", 1) == Ids{1});
  }

  void Encode_TakesAnyScriptAndEmoji() {
    const auto tokenizer = Tokenizer::Load(kTokenizerDir);
    QVERIFY(tokenizer.ok());
    for (const char* text :
         {"红色的圆向右移动", "🦀🦀🦀", "ما هذا", "a\x01 b", "</s><pad>"}) {
      const auto cleaned = CleanPrompt(text);
      QVERIFY2(cleaned.ok(), cleaned.status().ToString().c_str());
      const Ids ids = tokenizer->Encode(*cleaned, kLength);
      QVERIFY(ids.size() >= 2);
      for (const std::int64_t id : ids) QVERIFY(id >= 0 && id < tokenizer->size());
    }
    QVERIFY(CleanPrompt(std::string_view("a\0b", 3)).ok());
    QVERIFY(tokenizer->Encode(std::string_view("a\0b", 3), kLength).size() >= 2);
  }

  void Encode_HundredKilobytesAreQuick() {
    const auto tokenizer = Tokenizer::Load(kTokenizerDir);
    QVERIFY(tokenizer.ok());
    std::string words, one_word(100'000, 'a'), entities;
    while (words.size() < 100'000) words += "a red circle ";
    while (entities.size() < 100'000) entities += "&amp;amp;";
    const auto start = base::SystemClock().Now();
    const auto encode = [&](const std::string& text) {
      return tokenizer->Encode(CleanPrompt(text).value(), kLength).size();
    };
    QCOMPARE(encode(words), std::size_t{kLength});
    QVERIFY(encode(entities) <= std::size_t{kLength});
    QVERIFY(encode(one_word) <= std::size_t{kLength});
    const std::chrono::duration<double> elapsed = base::SystemClock().Now() - start;
    QVERIFY2(elapsed.count() < 5, std::to_string(elapsed.count()).c_str());
  }

  void Load_SaysWhatIsWrong() {
    QCOMPARE(Tokenizer::Load("/nonexistent").status().code(), absl::StatusCode::kNotFound);
    QTemporaryDir dir;
    QFile file(dir.filePath("spiece.model"));
    QVERIFY(file.open(QIODevice::WriteOnly));
    file.write("this is no model");
    file.close();
    QCOMPARE(Tokenizer::Load(dir.path().toStdString()).status().code(),
             absl::StatusCode::kInvalidArgument);
    QVERIFY(QFile::resize(file.fileName(), 0));
    QCOMPARE(Tokenizer::Load(dir.path().toStdString()).status().code(),
             absl::StatusCode::kInvalidArgument);
  }
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::TokenizerTest)
#include "tokenizer_test.moc"
