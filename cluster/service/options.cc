#include "cluster/service/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/base/check.h"
#include "cluster/config/yaml.h"

namespace onepiece::service {
namespace {

using google::protobuf::FieldDescriptor;

constexpr std::size_t kMaxNodeId = 128;
constexpr char kReadOnlyPath[] = "node.read_only";

std::string EnvironmentName(std::string_view flag) {
  std::string name = "ONEPIECE_";
  for (const char c : flag.substr(2)) name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

absl::Status BadValue(std::string_view flag, std::string_view message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG",
                         absl::StrCat(std::string(flag), ": ", std::string(message)),
                         {{"field", std::string(flag)}});
}

// Returns the message that holds the last field of `path`, and that field.
std::pair<google::protobuf::Message*, const FieldDescriptor*> Resolve(
    google::protobuf::Message* message, const std::string& path) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (std::size_t i = 0;; ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(names[i]);
    ONEPIECE_CHECK(field != nullptr);
    if (i + 1 == names.size()) return {message, field};
    message = message->GetReflection()->MutableMessage(message, field);
  }
}

template <typename Integer>
absl::Status ParseInteger(std::string_view flag, const std::string& text, Integer& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return absl::OkStatus();
  return BadValue(flag, absl::StrCat("'", text, "' is not an integer in range"));
}

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

bool IsNodeIdCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

// `given`: by people. A default id is made from the host's name, which may be 255 bytes long.
absl::Status CheckNodeId(const std::string& id, bool given) {
  if (id.size() <= kMaxNodeId && std::all_of(id.begin(), id.end(), IsNodeIdCharacter))
    return absl::OkStatus();
  return BadValue("--node-id",
                  absl::StrCat("1 to ", kMaxNodeId, " letters, digits, '-', '_' and '.'; ",
                               given ? "it has " : "the default from the host's name has ",
                               id.size(), " characters", given ? "" : ", so give one"));
}

}  // namespace

ServiceOptions::ServiceOptions(ProgramInfo info, google::protobuf::Message* config)
    : info_(std::move(info)), config_(config) {
  Bind("--node-id", "node.node_id",
       info_.device_field.empty() ? "Unique name of this node; default: role and host name"
                                  : "Unique name of this node; default: host name and device");
  if (info_.nodemanagers == NodeManagers::kRequired) {
    Bind("--nodemanager", "node.nodemanagers",
         "host:port of every NodeManager replica, comma separated");
  }
  Bind("--listen", "node.listen", "host:port to serve gRPC on (port 0: any free one)");
  Bind("--advertise", "node.advertise",
       "host:port that others dial; default: what --listen became");
  Bind("--fabric", "node.fabric", "Fabric URI; default: shm://{cluster id}");
  Bind("--metrics-address", "node.metrics_address", "host:port of the Prometheus endpoint");
  Bind("--workflow-set", "node.workflow_set", "Workflow set that this node belongs to");
  Bind("--zone", "node.zone", "Failure domain where this node runs, such as a rack");
  Bind("--host", "node.host", "Host where this node runs; default: the host's name");
  Bind("--label", "node.labels", "key=value that says something of this node, comma separated");
  Bind("--data-dir", "node.data_dir", "Folder for what this node keeps");
  Bind("--ready-file", "node.ready_file", "Written as JSON when the service is ready");
  Bind("--identity", "node.identity",
       "Folder of this node's certificate and key; default: identity in --data-dir");
  Bind("--insecure", "node.insecure",
       "No TLS, and everybody may do everything: for measuring, on loopback addresses only");
}

v1::NodeConfig& ServiceOptions::MutableNode() {
  // The message is looked up each time, because reading a file may put another one in its place.
  const FieldDescriptor* field = config_->GetDescriptor()->FindFieldByName("node");
  ONEPIECE_CHECK(field != nullptr && field->message_type() == v1::NodeConfig::descriptor());
  return static_cast<v1::NodeConfig&>(*config_->GetReflection()->MutableMessage(config_, field));
}

void ServiceOptions::Bind(std::string_view flag, std::string_view path, std::string_view help) {
  bindings_.push_back({std::string(flag), std::string(path), std::string(help), {}});
}

void ServiceOptions::BindReadOnly() {
  Bind("--read-only", kReadOnlyPath, "Refuse every call by which people change something");
}

ServiceOptions::Parsed ServiceOptions::Parse(int argc, const char* const* argv) {
  CLI::App app(info_.description, info_.program);
  std::string file;
  bool check_only = false;
  app.set_version_flag("--version", info_.program + " " ONEPIECE_VERSION);
  app.add_option("--config", file, "Configuration file (YAML)")->envname("ONEPIECE_CONFIG");
  app.add_flag("--check-config", check_only, "Check the configuration and exit (0: good, 78: bad)");
  for (Binding& binding : bindings_) {
    const FieldDescriptor* field = Resolve(config_, binding.path).second;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      binding.given.assign(1, "");
      app.add_flag(binding.flag, binding.given[0], binding.help)
          ->envname(EnvironmentName(binding.flag));
      continue;
    }
    const bool list = field->is_repeated();
    CLI::Option* option = app.add_option(binding.flag, binding.given, binding.help)
                              ->envname(EnvironmentName(binding.flag));
    // A list is given with commas or by repeating the flag. It must not take the arguments that
    // follow it.
    if (list) {
      option->delimiter(',')->allow_extra_args(false);
    } else {
      option->expected(1);
    }
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return {Outcome::kExit, app.exit(error) == 0 ? kExitOk : kExitUsage};
  }
  absl::Status status = file.empty() ? absl::OkStatus() : config::LoadYamlFile(file, config_);
  for (const Binding& binding : bindings_) {
    // A switch that nobody gave holds one empty text (above). So an empty value never overrides the
    // file.
    const bool given = !binding.given.empty() && binding.given != std::vector<std::string>{""};
    if (status.ok() && given) status = SetField(binding);
  }
  if (status.ok()) status = FillAndCheckNode();
  if (!status.ok()) {
    std::cerr << info_.program << ": " << status.message() << "\n";
    return {Outcome::kExit, kExitBadConfig};
  }
  return {check_only ? Outcome::kCheckOnly : Outcome::kRun, kExitOk};
}

absl::Status ServiceOptions::SetField(const Binding& binding) {
  const auto [message, field] = Resolve(config_, binding.path);
  const google::protobuf::Reflection* reflection = message->GetReflection();
  if (field->is_map()) return SetMap(binding, *message, *field);
  if (field->is_repeated()) {
    ONEPIECE_CHECK(field->cpp_type() == FieldDescriptor::CPPTYPE_STRING);
    reflection->ClearField(message, field);
    for (const std::string& value : binding.given) reflection->AddString(message, field, value);
    return absl::OkStatus();
  }
  const std::string& text = binding.given.back();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      reflection->SetString(message, field, text);
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_INT32: {
      std::int32_t value = 0;
      ONEPIECE_RETURN_IF_ERROR(ParseInteger(binding.flag, text, value));
      reflection->SetInt32(message, field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      std::int64_t value = 0;
      ONEPIECE_RETURN_IF_ERROR(ParseInteger(binding.flag, text, value));
      reflection->SetInt64(message, field, value);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      // The YAML reader knows how a file spells enums. A quote would end the text in YAML.
      if (text.find_first_of("\"\\") != std::string::npos)
        return BadValue(binding.flag, "letters and '_' only");
      return config::ParseYaml(field->name() + ": \"" + text + "\"", binding.flag, message);
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text != "true" && text != "false")
        return BadValue(binding.flag, absl::StrCat("'", text, "' is neither true nor false"));
      reflection->SetBool(message, field, text == "true");
      return absl::OkStatus();
    default:
      ONEPIECE_CHECK(
          !"only strings, integers, booleans, and lists and maps of strings can be bound");
  }
  return absl::OkStatus();
}

absl::Status ServiceOptions::SetMap(const Binding& binding, google::protobuf::Message& message,
                                    const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const FieldDescriptor* key = field.message_type()->map_key();
  const FieldDescriptor* value = field.message_type()->map_value();
  ONEPIECE_CHECK(key->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
                 value->cpp_type() == FieldDescriptor::CPPTYPE_STRING);
  reflection.ClearField(&message, &field);
  for (const std::string& text : binding.given) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      return BadValue(binding.flag, absl::StrCat("'", text, "' is not key=value"));
    google::protobuf::Message* entry = reflection.AddMessage(&message, &field);
    entry->GetReflection()->SetString(entry, key, text.substr(0, equals));
    entry->GetReflection()->SetString(entry, value, text.substr(equals + 1));
  }
  return absl::OkStatus();
}

absl::Status ServiceOptions::FillAndCheckNode() {
  v1::NodeConfig& node = MutableNode();
  const bool given = !node.node_id().empty();
  if (!given) node.set_node_id(DefaultNodeId(info_.role, HostName(), Device()));
  if (node.host().empty()) node.set_host(HostName());
  if (node.listen().empty()) node.set_listen("127.0.0.1:0");
  if (node.metrics_address().empty()) node.set_metrics_address("127.0.0.1:0");
  if (node.workflow_set().empty()) node.set_workflow_set("default");
  if (node.data_dir().empty() && info_.needs_data_dir)
    node.set_data_dir(DefaultStateDir() + "/" + node.node_id());
  if (node.identity().empty() && !node.data_dir().empty())
    node.set_identity(node.data_dir() + "/identity");
  const bool heeds_read_only =
      std::ranges::any_of(bindings_, [](const Binding& b) { return b.path == kReadOnlyPath; });
  if (node.read_only() && !heeds_read_only)
    return BadValue("read_only", "only NodeManagers, proxies and databases can be read-only");
  ONEPIECE_RETURN_IF_ERROR(CheckNodeId(node.node_id(), given));
  ONEPIECE_RETURN_IF_ERROR(CheckAddress("--listen", node.listen()));
  ONEPIECE_RETURN_IF_ERROR(CheckAddress("--metrics-address", node.metrics_address()));
  const bool everywhere =
      node.listen().starts_with("0.0.0.0:") || node.listen().starts_with("[::]:");
  if (!node.advertise().empty()) {
    ONEPIECE_RETURN_IF_ERROR(CheckAddress("--advertise", node.advertise()));
  } else if (everywhere) {
    return BadValue("--advertise",
                    "needed when --listen names no one address: what shall others dial?");
  }
  for (const std::string& address : node.nodemanagers()) {
    ONEPIECE_RETURN_IF_ERROR(CheckAddress("--nodemanager", address));
  }
  if (node.insecure()) {
    for (const std::string& address : {node.listen(), node.advertise(), node.metrics_address()}) {
      if (!address.empty() && !IsLoopback(address)) {
        return BadValue("--insecure", absl::StrCat("only for loopback addresses, which '", address,
                                                   "' is not: others could do everything"));
      }
    }
  }
  if (info_.nodemanagers == NodeManagers::kRequired && node.nodemanagers().empty()) {
    return BadValue("--nodemanager", "name at least one NodeManager (host:port)");
  }
  return absl::OkStatus();
}

// Empty for a program without a device.
std::string ServiceOptions::Device() const {
  if (info_.device_field.empty()) return "";
  const auto [message, field] = Resolve(config_, info_.device_field);
  const std::string device = message->GetReflection()->GetString(*message, field);
  return device.empty() ? "cpu" : device;
}

std::string DefaultNodeId(const std::string& role, const std::string& host,
                          const std::string& device) {
  if (device.empty()) return role + "-" + host;
  constexpr std::string_view kCuda = "cuda:";
  return host + "." + (device.starts_with(kCuda) ? "gpu" + device.substr(kCuda.size()) : device);
}

bool IsLoopback(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

absl::Status CheckAddress(std::string_view field, std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon != std::string_view::npos && colon > 0) {
    const std::string_view port = address.substr(colon + 1);
    unsigned value = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), value);
    if (!port.empty() && error == std::errc() && end == port.data() + port.size() &&
        value <= 65535) {
      return absl::OkStatus();
    }
  }
  return base::MakeError(
      absl::StatusCode::kInvalidArgument, "BAD_ADDRESS",
      absl::StrCat(std::string(field), ": '", std::string(address), "' is not host:port"),
      {{"field", std::string(field)}});
}

std::string DefaultStateDir() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && state[0] == '/') {
    return std::string(state) + "/onepiece";
  }
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr && home[0] == '/' ? home : "/var/lib") +
         "/.local/state/onepiece";
}

}  // namespace onepiece::service
