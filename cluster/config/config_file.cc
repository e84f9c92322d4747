#include "cluster/config/config_file.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cluster/config/config_changes.h"
#include "cluster/config/suggest.h"
#include "cluster/config/yaml.h"
#include "cluster/config/yaml_tree.h"
#include "cluster/config/yaml_writer.h"

namespace onepiece::config {
namespace {

// A message cannot tell an empty list from none, so the tree is asked which sections there are.
absl::StatusOr<std::vector<std::string>> NamedSections(std::string_view text,
                                                       std::string_view name) {
  ONEPIECE_ASSIGN_OR_RETURN(const YamlNode root, ReadYaml(text, name, kMaxConfigBytes));
  const bool is_mapping = root.kind == YamlNode::Kind::kMapping;
  std::vector<std::string> sections;
  for (std::size_t i = 0; is_mapping && i < root.items.size(); i += 2) {
    const YamlNode& key = root.items[i];
    if (key.text == "app_id" || key.text == "stages") {
      return ErrorAt(name, key.at,
                     "this is the file of one workflow; put it into a configuration as an element "
                     "of the list 'workflows' (docs/configuration.md)");
    }
    // A key whose lines are all commented out would remove everything that the section has.
    const bool is_section = v1::ClusterConfig::descriptor()->FindFieldByName(key.text) != nullptr;
    if (is_section && root.items[i + 1].kind == YamlNode::Kind::kNull) {
      return ErrorAt(name, key.at,
                     absl::StrCat(Quote(key.text),
                                  " has no value: write [] or {} to empty the "
                                  "section, or leave the key out"));
    }
    sections.push_back(key.text);
  }
  if (sections.empty()) {
    return ErrorAt(name, root.at,
                   absl::StrCat("there is no section in it: ",
                                absl::StrJoin(ConfigSections(), ", "), " are possible"));
  }
  return sections;
}

}  // namespace

absl::StatusOr<ConfigFile> ParseConfigFile(std::string_view text, std::string_view name) {
  ConfigFile file;
  ONEPIECE_ASSIGN_OR_RETURN(file.sections, NamedSections(text, name));
  ONEPIECE_RETURN_IF_ERROR(ParseYaml(text, name, &file.config, kMaxConfigBytes));
  return file;
}

std::string ConfigFileText(const v1::ClusterConfig& config) {
  v1::ClusterConfig written = config;
  for (v1::Workflow& workflow : *written.mutable_workflows()) workflow.clear_name();
  return ToYaml(written);
}

}  // namespace onepiece::config
