// Tests that YAML that was written is read back equal.
#include "cluster/config/yaml_writer.h"

#include <QtTest>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "cluster/config/yaml.h"
#include "example.pb.h"
#include "google/protobuf/util/message_differencer.h"
#include "tests/test_main.h"

namespace onepiece::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using testing::Example;

// Fills messages with whatever their fields can have, but what no file may have (yaml_writer.h).
class RandomMessages {
 public:
  explicit RandomMessages(std::uint64_t seed) : random_(seed) {}

  void Fill(Message& message, int depth) {
    const google::protobuf::Descriptor& type = *message.GetDescriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (Below(3) == 0) continue;
      if (field.is_map()) {
        FillMap(message, field, depth);
        continue;
      }
      const int count = field.is_repeated() ? Below(4) : 1;
      for (int n = 0; n < count; ++n) FillValue(message, field, depth);
    }
  }

  std::string Text() {
    static const std::vector<std::string> kPieces = {
        "a",    "tiny-wan", "7",      " ",      "\n",   "\t",   "\r",   "\"",   "'",
        "\\",   ":",        ": ",     " #",     "#",    "- ",   "[",    "]",    "{",
        "}",    ",",        "&",      "*",      "!",    "|",    ">",    "%",    "@",
        "`",    "?",        "~",      "=",      "é",    "日",   "😀",    "\x01", "\x04",
        "\x7f", "\u0085",   "\u2028", "\ufeff", "true", "null", "0x1f", "1e5",  ".inf",
        "---",  "...",      "<<",     "no",     "/",    ";"};
    std::string text;
    for (int n = Below(5); n > 0; --n)
      text += kPieces[static_cast<std::size_t>(Below(static_cast<int>(kPieces.size())))];
    return text;
  }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }

  template <typename Number>
  Number Integer() {
    switch (Below(4)) {
      case 0:
        return std::numeric_limits<Number>::min();
      case 1:
        return std::numeric_limits<Number>::max();
      case 2:
        return static_cast<Number>(Below(10));
      default:
        return static_cast<Number>(random_());
    }
  }

  double Real() {
    if (Below(3) == 0) return Below(100) / 10.0;
    for (;;) {
      const std::uint64_t bits = random_();
      double number = 0;
      std::memcpy(&number, &bits, sizeof number);
      if (std::isfinite(number)) return number;
    }
  }

  float ShortReal() {
    for (;;) {
      const auto bits = static_cast<std::uint32_t>(random_());
      float number = 0;
      std::memcpy(&number, &bits, sizeof number);
      if (std::isfinite(number)) return number;
    }
  }

  void FillMap(Message& message, const FieldDescriptor& field, int depth) {
    for (int n = Below(4); n > 0; --n) {
      Message& entry = *message.GetReflection()->AddMessage(&message, &field);
      // The keys of a map differ.
      const FieldDescriptor& key = *field.message_type()->map_key();
      if (key.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        entry.GetReflection()->SetString(&entry, &key, Text() + std::to_string(n));
      } else {
        entry.GetReflection()->SetInt32(&entry, &key, n - 2);
      }
      if (Below(3) != 0) FillValue(entry, *field.message_type()->map_value(), depth);
    }
  }

  void FillValue(Message& message, const FieldDescriptor& field, int depth) {
    const Reflection& r = *message.GetReflection();
    const bool more = field.is_repeated();
    const auto put = [&](auto set, auto add, auto value) {
      more ? (r.*add)(&message, &field, value) : (r.*set)(&message, &field, value);
    };
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return put(&Reflection::SetInt32, &Reflection::AddInt32, Integer<std::int32_t>());
      case FieldDescriptor::CPPTYPE_INT64:
        return put(&Reflection::SetInt64, &Reflection::AddInt64, Integer<std::int64_t>());
      case FieldDescriptor::CPPTYPE_UINT32:
        return put(&Reflection::SetUInt32, &Reflection::AddUInt32, Integer<std::uint32_t>());
      case FieldDescriptor::CPPTYPE_UINT64:
        return put(&Reflection::SetUInt64, &Reflection::AddUInt64, Integer<std::uint64_t>());
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return put(&Reflection::SetDouble, &Reflection::AddDouble, Real());
      case FieldDescriptor::CPPTYPE_FLOAT:
        return put(&Reflection::SetFloat, &Reflection::AddFloat, ShortReal());
      case FieldDescriptor::CPPTYPE_BOOL:
        return put(&Reflection::SetBool, &Reflection::AddBool, Below(2) == 0);
      case FieldDescriptor::CPPTYPE_STRING:
        return put(&Reflection::SetString, &Reflection::AddString, Text());
      case FieldDescriptor::CPPTYPE_ENUM:
        return put(&Reflection::SetEnumValue, &Reflection::AddEnumValue,
                   field.enum_type()->value(Below(field.enum_type()->value_count()))->number());
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        Message& inner =
            more ? *r.AddMessage(&message, &field) : *r.MutableMessage(&message, &field);
        if (depth < 4) Fill(inner, depth + 1);
      }
    }
  }

  std::mt19937_64 random_;
};

}  // namespace

class YamlWriterTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void ToYaml_ReadsWell() {
    Example example;
    example.set_name("tiny-wan");
    example.set_ratio(0.25);
    example.set_enabled(true);
    example.set_fruit(testing::FRUIT_PEAR);
    example.mutable_inner()->mutable_inner()->set_depth(2);
    example.add_names("a");
    example.add_names("b c");
    example.add_inners()->set_depth(3);
    example.add_inners();
    example.add_inners()->mutable_inner()->set_depth(4);
    (*example.mutable_numbers())["two"] = 2;
    (*example.mutable_numbers())["one"] = 1;
    (*example.mutable_by_number())[-5];
    example.set_right(0);
    QCOMPARE(QString::fromStdString(ToYaml(example)), QString(R"(name: tiny-wan
ratio: 0.25
enabled: true
fruit: pear
inner:
  inner:
    depth: 2
names: [a, "b c"]
inners:
  - depth: 3
  - {}
  - inner:
      depth: 4
numbers:
  one: 1
  two: 2
by_number:
  -5: {}
right: 0
)"));
    QCOMPARE(QString::fromStdString(ToYaml(Example())), QString("{}\n"));
  }

  void Scalars_AreQuotedWhereAReaderMayTakeThemForSomethingElse() {
    for (const char* plain : {"a", "tiny-wan-t2v", "diffusion/wan/tiny;bf16", "model.v2", "A_b"})
      QCOMPARE(YamlScalar(plain), std::string(plain));
    for (const char* text : {"", "20", "1.5", "true", "No", "null", "~", "-x", "a b", "a: b", "é",
                             "a,b", "2024-01-01", "*a", "#a", "\n"})
      QVERIFY2(YamlScalar(text).starts_with('"'), text);
    QCOMPARE(YamlScalar("a\"\\\n\x01"), std::string("\"a\\\"\\\\\\n\\x01\""));
  }

  void Random_MessagesAreReadBackEqual() {
    const char* given = std::getenv("ONEPIECE_SEED");
    const std::uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device{}();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    RandomMessages random(seed);
    for (int i = 0; i < 1000; ++i) {
      Example example;
      random.Fill(example, 0);
      const std::string yaml = ToYaml(example);
      Example back;
      const absl::Status status = ParseYaml(yaml, "written", &back);
      QVERIFY2(status.ok(), (base::Message(status) + "\n" + yaml).c_str());
      google::protobuf::util::MessageDifferencer differencer;
      std::string difference;
      differencer.ReportDifferencesToString(&difference);
      QVERIFY2(differencer.Compare(example, back), (difference + "\n" + yaml).c_str());
      // What is equal is written alike.
      QCOMPARE(ToYaml(back), yaml);
    }
  }

  void FieldToYaml_IsADocumentOfItsOwn() {
    Example example;
    const auto yaml = [&](const char* field) {
      return FieldToYaml(example, *Example::descriptor()->FindFieldByName(field));
    };
    QCOMPARE(yaml("names"), std::string("[]\n"));
    QCOMPARE(yaml("inners"), std::string("[]\n"));
    QCOMPARE(yaml("inner"), std::string("{}\n"));
    example.set_name("a b");
    example.add_inners()->mutable_inner()->set_depth(4);
    example.add_inners();
    (*example.mutable_by_number())[3].set_depth(1);
    QCOMPARE(yaml("name"), std::string("\"a b\"\n"));
    QCOMPARE(yaml("inners"), std::string("- inner:\n    depth: 4\n- {}\n"));
    QCOMPARE(yaml("by_number"), std::string("3:\n  depth: 1\n"));
  }
};

}  // namespace onepiece::config

ONEPIECE_TEST(onepiece::config::YamlWriterTest)
#include "yaml_writer_test.moc"
