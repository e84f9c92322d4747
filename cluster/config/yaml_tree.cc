#include "cluster/config/yaml_tree.h"

#include <sstream>
#include <unordered_set>

#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/config/yaml.h"
#include "yaml-cpp/anchor.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/mark.h"
#include "yaml-cpp/parser.h"

namespace onepiece::config {
namespace {

constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxNodes = 65536;

Position At(const YAML::Mark& mark) {
  return mark.is_null() ? Position{} : Position{mark.line + 1, mark.column + 1};
}

// Builds the tree from the parser's events. An event handler cannot return an error. It throws what
// the parser itself throws, and ReadYaml() turns both into a status.
class TreeBuilder final : public YAML::EventHandler {
 public:
  [[nodiscard]] YamlNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(YamlNode::Kind::kNull, mark, "", anchor, "");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YAML::ParserException(mark, "aliases (*name) are not supported: write the value out");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // The parser gives a quoted scalar the tag "!", and a plain scalar the tag "?" or none.
    if (!base::IsUtf8(value) || value.find('\0') != std::string::npos) {
      throw YAML::ParserException(mark, "text must be UTF-8 without NUL");
    }
    const bool quoted = tag == "!";
    YamlNode& node = Add(quoted ? YamlNode::Kind::kQuoted : YamlNode::Kind::kPlain, mark,
                         quoted ? "" : tag, anchor, value);
    node.text = value;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Add(YamlNode::Kind::kList, mark, tag, anchor, ""), mark);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(Add(YamlNode::Kind::kMapping, mark, tag, anchor, ""), mark);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Collection {
    YamlNode* node;
    std::unordered_set<std::string> keys;
  };

  YamlNode& Add(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
                YAML::anchor_t anchor, const std::string& text) {
    if (anchor != YAML::NullAnchor)
      throw YAML::ParserException(mark, "anchors (&name) are not supported");
    if (!tag.empty() && tag != "?")
      throw YAML::ParserException(mark, "tags (!name) are not supported");
    if (++count_ > kMaxNodes) throw YAML::ParserException(mark, "more than 65536 values");
    if (open_.empty()) {
      root_ = {kind, At(mark), {}, {}};
      return root_;
    }
    Collection& parent = open_.back();
    if (parent.node->kind == YamlNode::Kind::kMapping && parent.node->items.size() % 2 == 0) {
      if (kind != YamlNode::Kind::kPlain && kind != YamlNode::Kind::kQuoted) {
        throw YAML::ParserException(mark, "a key must be text");
      }
      if (!parent.keys.insert(text).second) {
        throw YAML::ParserException(mark, "key '" + base::ToUtf8(text, 64) + "' is given twice");
      }
    }
    return parent.node->items.emplace_back(YamlNode{kind, At(mark), {}, {}});
  }

  // The pointer stays valid while the node is open, because only the innermost open node grows and
  // no other vector of nodes reallocates.
  void Open(YamlNode& node, const YAML::Mark& mark) {
    if (open_.size() >= kMaxDepth)
      throw YAML::ParserException(mark, "nested deeper than 32 levels");
    open_.push_back({&node, {}});
  }

  YamlNode root_;
  std::vector<Collection> open_;
  std::size_t count_ = 0;
};

}  // namespace

absl::Status ErrorAt(std::string_view name, Position at, std::string_view what) {
  const std::string line = std::to_string(at.line);
  const std::string column = std::to_string(at.column);
  std::string message(name);
  message.append(":").append(line).append(":").append(column).append(": ").append(what);
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG", message,
                         {{"file", std::string(name)}, {"line", line}, {"column", column}});
}

absl::StatusOr<YamlNode> ReadYaml(std::string_view text, std::string_view name,
                                  std::size_t max_bytes) {
  if (text.size() > max_bytes)
    return ErrorAt(name, {}, "larger than " + std::to_string(max_bytes >> 10) + " KiB");
  if (!base::IsUtf8(text)) return ErrorAt(name, {}, "not UTF-8");
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder builder;
    parser.HandleNextDocument(builder);
    YamlNode root = builder.TakeRoot();
    TreeBuilder further;
    if (parser.HandleNextDocument(further)) {
      return ErrorAt(name, further.TakeRoot().at, "a second document: only one is allowed");
    }
    return root;
  } catch (const YAML::Exception& error) {
    return ErrorAt(name, At(error.mark), error.msg);
  }
}

}  // namespace onepiece::config
