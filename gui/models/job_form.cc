#include "gui/models/job_form.h"

#include <QStringList>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/workflow/input_check.h"
#include "cluster/workflow/media_type.h"
#include "cluster/workflow/parameter_check.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

using google::protobuf::Value;
using v1::ParameterSpec;

/// A parameter that allows longer texts gets an editor with several lines.
constexpr std::int64_t kLineBytes = 256;

bool IsBounded(const ParameterSpec& spec) { return spec.minimum() != 0 || spec.maximum() != 0; }

/// The shortest text that parses to the same number.
std::string NumberText(double number) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::string(text.data(), end) : std::string();
}

std::optional<double> ParseNumber(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// nullopt if the text is not a value of the parameter's type.
std::optional<Value> Parse(const ParameterSpec& spec, const std::string& text) {
  Value value;
  switch (spec.type()) {
    case ParameterSpec::INTEGER:
    case ParameterSpec::NUMBER: {
      const auto number = ParseNumber(text);
      if (!number.has_value()) return std::nullopt;
      value.set_number_value(*number);
      return value;
    }
    case ParameterSpec::BOOLEAN:
      if (text != "true" && text != "false") return std::nullopt;
      value.set_bool_value(text == "true");
      return value;
    default:
      value.set_string_value(text);
      return value;
  }
}

bool SameValue(const ParameterSpec& spec, const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto first = Parse(spec, a), second = Parse(spec, b);
  return first.has_value() && second.has_value() && first->has_number_value() &&
         first->number_value() == second->number_value();
}

/// The CLI's own option for a parameter (cluster/terminal/job_arguments.cc). Empty if it has none
/// and needs --param.
std::string_view OptionOf(const ParameterSpec& spec) {
  struct Option {
    std::string_view parameter, option;
    bool text, integer;
  };
  static constexpr std::array<Option, 10> kOptions = {
      {{"prompt", "--prompt", true, false},
       {"negative_prompt", "--negative-prompt", true, false},
       {"format", "--format", true, false},
       {"seed", "--seed", false, true},
       {"steps", "--steps", false, true},
       {"num_frames", "--frames", false, true},
       {"width", "--width", false, true},
       {"height", "--height", false, true},
       {"fps", "--fps", false, true},
       {"guidance_scale", "--guidance", false, false}}};
  const auto at = std::find_if(kOptions.begin(), kOptions.end(), [&](const Option& option) {
    return option.parameter == spec.name();
  });
  if (at == kOptions.end()) return {};
  if (at->text) return spec.type() == ParameterSpec::STRING ? at->option : std::string_view();
  const bool fits = spec.type() == ParameterSpec::INTEGER ||
                    (spec.type() == ParameterSpec::NUMBER && !at->integer);
  return fits ? at->option : std::string_view();
}

/// The text as a JSON string. --param takes whatever stands in double quotes as text; without them
/// it would read "7" or "true" as a number or a boolean.
std::string JsonQuoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      static constexpr std::string_view kHex = "0123456789abcdef";
      quoted += "\\u00";
      quoted += kHex[static_cast<unsigned char>(c) >> 4];
      quoted += kHex[static_cast<unsigned char>(c) & 15];
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

/// The words of the command line for one parameter, with a space in front.
std::string ArgumentOf(const ParameterSpec& spec, const std::string& text) {
  const auto value = Parse(spec, text);
  const bool is_text = spec.type() == ParameterSpec::STRING;
  const std::string plain =
      value.has_value() && value->has_number_value() ? NumberText(value->number_value()) : text;
  const std::string_view option = OptionOf(spec);
  // The CLI would misread an option with an empty value or with a value that begins with a dash.
  // Those go through --param.
  if (!option.empty() && !plain.empty() && (!is_text || plain.front() != '-')) {
    return " " + std::string(option) + (is_text ? " " : "=") + ShellQuoted(plain);
  }
  return " --param " + ShellQuoted(spec.name() + "=" + (is_text ? JsonQuoted(plain) : plain));
}

}  // namespace

absl::StatusOr<InputFile> ReadInputFile(const std::string& path, std::int64_t max_bytes) {
  const auto bad = [&](std::string_view why) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_INPUT_FILE",
                           base::ToUtf8(path, 4096) + ": " + std::string(why));
  };
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return bad("is no file that can be read");
  std::ifstream file(path, std::ios::binary);
  auto bytes = std::make_shared<std::string>();
  std::vector<char> block(1 << 16);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0) {
    bytes->append(block.data(), static_cast<std::size_t>(file.gcount()));
    if (static_cast<std::int64_t>(bytes->size()) > max_bytes) {
      return bad("has more than the " + std::to_string(max_bytes) + " bytes that are allowed");
    }
  }
  if (file.bad() || (bytes->empty() && !file.eof())) return bad("cannot be read");
  if (bytes->empty()) return bad("is empty");
  InputFile read{path, std::string(workflow::MediaTypeOf(*bytes, path)), nullptr};
  read.bytes = std::move(bytes);
  return read;
}

EditorKind EditorOf(const ParameterSpec& spec) {
  switch (spec.type()) {
    case ParameterSpec::BOOLEAN:
      return EditorKind::kCheck;
    case ParameterSpec::NUMBER:
      return EditorKind::kNumber;
    case ParameterSpec::INTEGER: {
      constexpr double kMost = std::numeric_limits<std::int32_t>::max();
      const bool small = IsBounded(spec) && spec.minimum() >= -kMost && spec.maximum() <= kMost;
      return small ? EditorKind::kInteger : EditorKind::kNumber;
    }
    default:
      if (!spec.allowed_values().empty()) return EditorKind::kChoice;
      return spec.max_bytes() == 0 || spec.max_bytes() > kLineBytes ? EditorKind::kText
                                                                    : EditorKind::kLine;
  }
}

QString RangeText(const ParameterSpec& spec) {
  QStringList parts;
  const bool number = spec.type() == ParameterSpec::INTEGER || spec.type() == ParameterSpec::NUMBER;
  if (number && IsBounded(spec)) {
    parts.append(Tr("%1 to %2")
                     .arg(QString::fromStdString(NumberText(spec.minimum())),
                          QString::fromStdString(NumberText(spec.maximum()))));
  }
  if (spec.type() == ParameterSpec::INTEGER && spec.multiple_of() > 1) {
    parts.append(
        spec.multiple_offset() == 0
            ? Tr("a multiple of %1").arg(spec.multiple_of())
            : Tr("a multiple of %1 plus %2").arg(spec.multiple_of()).arg(spec.multiple_offset()));
  }
  if (spec.type() == ParameterSpec::STRING && spec.allowed_values().empty() &&
      spec.max_bytes() > 0) {
    parts.append(Tr("at most %1").arg(FormatBytes(static_cast<double>(spec.max_bytes()))));
  }
  return parts.join(QStringLiteral(", "));
}

JobForm::JobForm(v1::Workflow workflow, JobValues values) : workflow_(std::move(workflow)) {
  // The values may come from another version of the schema or from another application. Set() and
  // SetInput() drop the names that this workflow does not have.
  for (auto& [name, text] : values.parameters) Set(name, std::move(text));
  for (auto& [name, file] : values.inputs) SetInput(name, std::move(file));
  CheckFiles();
}

const ParameterSpec* JobForm::Find(const std::string& parameter) const {
  const auto& specs = workflow_.parameters();
  const auto at = std::find_if(specs.begin(), specs.end(),
                               [&](const auto& spec) { return spec.name() == parameter; });
  return at == specs.end() ? nullptr : &*at;
}

std::string JobForm::Text(const std::string& parameter) const {
  const auto given = values_.parameters.find(parameter);
  if (given != values_.parameters.end()) return given->second;
  const ParameterSpec* spec = Find(parameter);
  return spec == nullptr ? std::string() : spec->default_value();
}

void JobForm::Set(const std::string& parameter, std::string text) {
  const ParameterSpec* spec = Find(parameter);
  if (spec == nullptr) return;
  std::erase(text, '\0');  // CommandLine() could not carry it.
  const bool left_out =
      spec->required() ? text.empty() : SameValue(*spec, text, spec->default_value());
  if (left_out) {
    values_.parameters.erase(parameter);
  } else {
    values_.parameters[parameter] = std::move(text);
  }
}

void JobForm::SetInput(const std::string& input, InputFile file) {
  const auto& specs = workflow_.inputs();
  const bool known = std::any_of(specs.begin(), specs.end(),
                                 [&](const auto& spec) { return spec.name() == input; });
  if (!known) return;
  values_.inputs[input] = std::move(file);
  CheckFiles();
}

void JobForm::ClearInput(const std::string& input) {
  values_.inputs.erase(input);
  CheckFiles();
}

void JobForm::CheckFiles() { files_ = workflow::CheckInputs(workflow_, Request({}).inputs()); }

google::protobuf::Struct JobForm::Parameters(std::map<std::string, std::string>* violations) const {
  google::protobuf::Struct parameters;
  for (const auto& [name, text] : values_.parameters) {
    const ParameterSpec& spec = *Find(name);
    const auto value = Parse(spec, text);
    if (value.has_value()) {
      (*parameters.mutable_fields())[name] = *value;
    } else if (violations != nullptr) {
      violations->emplace(name, spec.type() == ParameterSpec::BOOLEAN ? "must be true or false"
                                                                      : "must be a number");
    }
  }
  return parameters;
}

std::map<std::string, std::string> JobForm::Violations() const {
  std::map<std::string, std::string> violations;
  const auto parameters = Parameters(&violations);
  const auto checked = workflow::CheckParameters(workflow_, parameters);
  for (const absl::Status& status : {checked.status(), files_}) {
    if (status.ok()) continue;
    for (const auto& [name, why] : base::GetReason(status).metadata) {
      const bool has_place =
          Find(name) != nullptr ||
          std::any_of(workflow_.inputs().begin(), workflow_.inputs().end(),
                      [&name = name](const auto& spec) { return spec.name() == name; });
      violations.emplace(has_place ? name : std::string(), has_place ? why : name + " " + why);
    }
  }
  return violations;
}

v1::SubmitJobRequest JobForm::Request(const std::string& request_id) const {
  v1::SubmitJobRequest request;
  request.set_app_id(workflow_.app_id());
  request.set_request_id(request_id);
  *request.mutable_parameters() = Parameters(nullptr);
  for (const auto& [name, file] : values_.inputs) {
    if (file.bytes == nullptr) continue;
    v1::JobInput& input = *request.add_inputs();
    input.set_name(name);
    input.set_media_type(file.media_type);
    input.set_data(*file.bytes);
  }
  return request;
}

QString JobForm::CommandLine() const {
  std::string line = "onepiece submit --app " + ShellQuoted(workflow_.app_id());
  for (const ParameterSpec& spec : workflow_.parameters()) {  // In the schema's order.
    const auto given = values_.parameters.find(spec.name());
    if (given != values_.parameters.end()) line += ArgumentOf(spec, given->second);
  }
  for (const auto& [name, file] : values_.inputs) {
    line += name == "image" ? " --image " + ShellQuoted(file.path)
                            : " --input " + ShellQuoted(name + "=" + file.path);
  }
  return QString::fromStdString(line);
}

JobValues ValuesOf(const v1::Job& job) {
  JobValues values;
  for (const auto& [name, value] : job.parameters().fields()) {
    switch (value.kind_case()) {
      case Value::kStringValue:
        values.parameters[name] = value.string_value();
        break;
      case Value::kNumberValue:
        values.parameters[name] = NumberText(value.number_value());
        break;
      case Value::kBoolValue:
        values.parameters[name] = value.bool_value() ? "true" : "false";
        break;
      default:
        break;
    }
  }
  return values;
}

std::string ShellQuoted(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-./=:,+@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace onepiece::gui
