#include "cluster/contexts/contexts.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"
#include "cluster/config/yaml_tree.h"
#include "cluster/config/yaml_writer.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/secret_files.h"

namespace onepiece::contexts {
namespace {

namespace fs = std::filesystem;
using config::YamlNode;

absl::Status BadContext(std::string_view field, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONTEXT",
                         absl::StrCat(base::AbslView(field), ": ", what),
                         {{"field", std::string(field)}});
}

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ||
           c == '@';
  });
}

bool IsAddress(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  int port = 0;
  return colon != std::string::npos && colon > 0 && address.size() <= 255 &&
         std::ranges::none_of(address, [](char c) { return c == ' ' || c == ',' || c == '/'; }) &&
         absl::SimpleAtoi(address.substr(colon + 1), &port) && port > 0 && port < 65536;
}

absl::Status CheckCredentials(const Credentials& credentials) {
  const bool token = !credentials.token_file.empty() || !credentials.authorities.empty();
  if (credentials.folder.empty() && !token) {
    return BadContext("identity",
                      "a context has the folder of an identity, or a CA file and a token's file");
  }
  if (!credentials.folder.empty() && token)
    return BadContext("identity", "a context has an identity or a token, not both");
  if (!credentials.folder.empty()) return identity::CheckIdentityName(credentials.name);
  if (credentials.token_file.empty()) return BadContext("token_file", "missing beside the CA file");
  if (credentials.authorities.empty()) return BadContext("ca", "missing beside the token's file");
  return absl::OkStatus();
}

absl::Status CheckContext(const ClusterContext& context) {
  if (!IsName(context.name)) {
    return BadContext("name",
                      "a context's name has 1 to 64 letters, digits, '-', '_', '.' and '@'");
  }
  if (context.nodemanagers.empty())
    return BadContext("nodemanagers", "at least one is needed, HOST:PORT");
  if (context.nodemanagers.size() > 16) return BadContext("nodemanagers", "at most 16");
  for (const std::string& address : context.nodemanagers) {
    if (!IsAddress(address))
      return BadContext("nodemanagers", "'" + address.substr(0, 64) + "' is not HOST:PORT");
  }
  return CheckCredentials(context.credentials);
}

std::string Absolute(const std::string& path) {
  if (path.empty()) return path;
  std::error_code ignored;
  const fs::path absolute = fs::absolute(path, ignored).lexically_normal();
  return ignored ? path : absolute.string();
}

// Reading.

/// One mapping of the file, of which each key is taken once. What is left is unknown.
class Mapping {
 public:
  static absl::StatusOr<Mapping> Of(const YamlNode& node, std::string_view file) {
    if (node.kind != YamlNode::Kind::kMapping)
      return config::ErrorAt(file, node.at, "keys and values are expected here");
    return Mapping(node, file);
  }
  /// Null when the key is not there.
  const YamlNode* Take(std::string_view key) {
    for (std::size_t at = 0; at + 1 < node_->items.size(); at += 2) {
      if (node_->items[at].text != key) continue;
      taken_.push_back(at);
      return &node_->items[at + 1];
    }
    return nullptr;
  }
  absl::Status TakeText(std::string_view key, std::string& text) {
    const YamlNode* node = Take(key);
    if (node == nullptr) return absl::OkStatus();
    ONEPIECE_ASSIGN_OR_RETURN(text, TextOf(*node));
    return absl::OkStatus();
  }
  [[nodiscard]] absl::StatusOr<std::string> TextOf(const YamlNode& node) const {
    if (node.kind == YamlNode::Kind::kPlain || node.kind == YamlNode::Kind::kQuoted)
      return node.text;
    return config::ErrorAt(file_, node.at, "a text is expected here");
  }
  [[nodiscard]] absl::Status CheckAllTaken() const {
    for (std::size_t at = 0; at + 1 < node_->items.size(); at += 2) {
      if (std::ranges::find(taken_, at) != taken_.end()) continue;
      return config::ErrorAt(
          file_, node_->items[at].at,
          absl::StrCat("unknown key '", node_->items[at].text.substr(0, 64), "'"));
    }
    return absl::OkStatus();
  }

 private:
  Mapping(const YamlNode& node, std::string_view file) : node_(&node), file_(file) {}
  const YamlNode* node_;
  std::string_view file_;
  std::vector<std::size_t> taken_;
};

absl::Status CheckList(const YamlNode& node, std::string_view file) {
  if (node.kind == YamlNode::Kind::kList || node.kind == YamlNode::Kind::kNull)
    return absl::OkStatus();
  return config::ErrorAt(file, node.at, "a list is expected here");
}

absl::StatusOr<ClusterContext> ContextFrom(const YamlNode& node, std::string_view file) {
  ClusterContext context;
  ONEPIECE_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(node, file));
  ONEPIECE_RETURN_IF_ERROR(mapping.TakeText("name", context.name));
  ONEPIECE_RETURN_IF_ERROR(mapping.TakeText("identity", context.credentials.folder));
  ONEPIECE_RETURN_IF_ERROR(mapping.TakeText("identity_name", context.credentials.name));
  ONEPIECE_RETURN_IF_ERROR(mapping.TakeText("ca", context.credentials.authorities));
  ONEPIECE_RETURN_IF_ERROR(mapping.TakeText("token_file", context.credentials.token_file));
  if (const YamlNode* addresses = mapping.Take("nodemanagers"); addresses != nullptr) {
    ONEPIECE_RETURN_IF_ERROR(CheckList(*addresses, file));
    for (const YamlNode& address : addresses->items) {
      ONEPIECE_ASSIGN_OR_RETURN(std::string text, mapping.TextOf(address));
      context.nodemanagers.push_back(std::move(text));
    }
  }
  ONEPIECE_RETURN_IF_ERROR(mapping.CheckAllTaken());
  return context;
}

std::string TextLine(std::string_view key, const std::string& value) {
  if (value.empty()) return "";
  return absl::StrCat("    ", base::AbslView(key), ": ", config::YamlScalar(value), "\n");
}

std::string NamesOf(const std::vector<ClusterContext>& all) {
  return absl::StrJoin(all, ", ", [](std::string* out, const ClusterContext& context) {
    absl::StrAppend(out, context.name);
  });
}

}  // namespace

absl::Status Contexts::Add(ClusterContext context) {
  ONEPIECE_RETURN_IF_ERROR(CheckContext(context));
  if (all_.size() >= kMax) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "TOO_MANY_CONTEXTS",
                           absl::StrCat("there are ", kMax, " contexts already"));
  }
  const auto at = std::ranges::lower_bound(all_, context.name, {}, &ClusterContext::name);
  if (at != all_.end() && at->name == context.name) {
    return base::MakeError(
        absl::StatusCode::kAlreadyExists, "CONTEXT_EXISTS",
        absl::StrCat("there is a context '", context.name, "' already: `onepiece context remove ",
                     context.name, "` first, or choose another name"));
  }
  context.credentials.folder = Absolute(context.credentials.folder);
  context.credentials.authorities = Absolute(context.credentials.authorities);
  context.credentials.token_file = Absolute(context.credentials.token_file);
  if (all_.empty()) current_ = context.name;
  all_.insert(at, std::move(context));
  return absl::OkStatus();
}

absl::StatusOr<ClusterContext> Contexts::Find(std::string_view name) const {
  if (name.empty() && current_.empty()) {
    return base::MakeError(absl::StatusCode::kNotFound, "NO_CONTEXT",
                           all_.empty() ? "there are no contexts: `onepiece context add` makes one"
                                        : "no context is the current one: `onepiece context use "
                                          "NAME` chooses one of " +
                                              NamesOf(all_));
  }
  const std::string wanted(name.empty() ? std::string_view(current_) : name);
  const auto found = std::ranges::find(all_, wanted, &ClusterContext::name);
  if (found != all_.end()) return *found;
  return base::MakeError(
      absl::StatusCode::kNotFound, "CONTEXT_UNKNOWN",
      absl::StrCat("there is no context '", wanted.substr(0, 64), "'; ",
                   all_.empty() ? "there are none: `onepiece context add` makes one"
                                : absl::StrCat("there are ", NamesOf(all_))),
      {{"context", wanted.substr(0, 64)}});
}

absl::Status Contexts::Use(std::string_view name) {
  ONEPIECE_ASSIGN_OR_RETURN(const ClusterContext found, Find(name));
  current_ = found.name;
  return absl::OkStatus();
}

absl::Status Contexts::Remove(std::string_view name) {
  ONEPIECE_ASSIGN_OR_RETURN(const ClusterContext found, Find(name));
  std::erase(all_, found);
  if (current_ == found.name) current_.clear();
  return absl::OkStatus();
}

std::string Contexts::ToYaml() const {
  std::string text = "# Written by `onepiece context`.\n";
  if (!current_.empty()) absl::StrAppend(&text, "current: ", config::YamlScalar(current_), "\n");
  absl::StrAppend(&text, all_.empty() ? "contexts: []\n" : "contexts:\n");
  for (const ClusterContext& context : all_) {
    absl::StrAppend(&text, "  - name: ", config::YamlScalar(context.name), "\n",
                    "    nodemanagers:\n");
    for (const std::string& address : context.nodemanagers)
      absl::StrAppend(&text, "      - ", config::YamlScalar(address), "\n");
    const Credentials& credentials = context.credentials;
    absl::StrAppend(&text, TextLine("identity", credentials.folder),
                    credentials.folder.empty() || credentials.name == identity::kAdminName
                        ? ""
                        : TextLine("identity_name", credentials.name),
                    TextLine("ca", credentials.authorities),
                    TextLine("token_file", credentials.token_file));
  }
  return text;
}

absl::StatusOr<Contexts> Contexts::FromYaml(std::string_view text, std::string_view name) {
  ONEPIECE_ASSIGN_OR_RETURN(const YamlNode root,
                            config::ReadYaml(text, name, identity::kMaxSecretBytes));
  Contexts contexts;
  if (root.kind == YamlNode::Kind::kNull) return contexts;
  ONEPIECE_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(root, name));
  if (const YamlNode* list = mapping.Take("contexts"); list != nullptr) {
    ONEPIECE_RETURN_IF_ERROR(CheckList(*list, name));
    for (const YamlNode& item : list->items) {
      ONEPIECE_ASSIGN_OR_RETURN(ClusterContext context, ContextFrom(item, name));
      const absl::Status added = contexts.Add(std::move(context));
      if (!added.ok()) return config::ErrorAt(name, item.at, base::Message(added));
    }
  }
  contexts.current_.clear();  // The file alone says which one is.
  const YamlNode* current = mapping.Take("current");
  ONEPIECE_RETURN_IF_ERROR(mapping.CheckAllTaken());
  if (current == nullptr || current->kind == YamlNode::Kind::kNull) return contexts;
  ONEPIECE_ASSIGN_OR_RETURN(contexts.current_, mapping.TextOf(*current));
  const absl::Status known = contexts.Find("").status();
  if (!known.ok()) return config::ErrorAt(name, current->at, base::Message(known));
  return contexts;
}

std::string DefaultPath() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string path = variable("ONEPIECE_CONTEXTS"); !path.empty()) return path;
  std::string folder = variable("XDG_CONFIG_HOME");
  if (!folder.starts_with('/')) folder = variable("HOME") + "/.config";
  return folder + "/onepiece/contexts.yaml";
}

absl::StatusOr<Contexts> Load(const std::string& path) {
  const std::string folder = fs::path(Absolute(path)).parent_path().string();
  // The folder counts only when it has the file: another program's ~/.config/onepiece may be wide.
  const absl::StatusOr<std::string> text = identity::ReadSecretFile(path);
  if (absl::IsNotFound(text.status())) return Contexts();
  if (!text.ok()) return text.status();
  ONEPIECE_RETURN_IF_ERROR(identity::CheckSecretFolder(folder));
  return Contexts::FromYaml(*text, path);
}

absl::Status Save(const std::string& path, const Contexts& contexts) {
  const std::string absolute = Absolute(path);
  ONEPIECE_RETURN_IF_ERROR(identity::EnsureSecretFolder(fs::path(absolute).parent_path().string()));
  return identity::WriteSecretFile(absolute, contexts.ToYaml());
}

}  // namespace onepiece::contexts
