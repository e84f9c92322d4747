#include "cluster/terminal/job_arguments.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"

namespace onepiece::terminal {
namespace {

absl::Status Invalid(const std::string& field, const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "INVALID_PARAMETERS",
                         field + ": " + message, {{"field", field}});
}

/// Reads true, false and numbers as such. Everything else is text, and so is everything in double
/// quotes.
google::protobuf::Value ParseValue(const std::string& text) {
  google::protobuf::Value value;
  const auto parsed = nlohmann::json::parse(text, nullptr, false);
  if (parsed.is_boolean()) {
    value.set_bool_value(parsed.get<bool>());
  } else if (parsed.is_number()) {
    value.set_number_value(parsed.get<double>());
  } else {
    value.set_string_value(parsed.is_string() ? parsed.get<std::string>() : text);
  }
  return value;
}

}  // namespace

void JobArguments::AddTo(CLI::App& verb) {
  verb.add_option("--app", app, "Application")->capture_default_str();
  verb.add_option("--prompt", prompt, "What the result shall show");
  verb.add_option("--negative-prompt", negative_prompt, "What it shall not show");
  verb.add_option("--seed", seed, "The same seed and settings give the same result");
  verb.add_option("--steps", steps, "Denoising steps");
  verb.add_option("--guidance", guidance, "How strongly the prompt steers");
  verb.add_option("--frames", frames, "Frames of the video");
  verb.add_option("--width", width, "Pixels");
  verb.add_option("--height", height, "Pixels");
  verb.add_option("--fps", fps, "Frames per second of the video");
  verb.add_option("--format", format, "mp4 or png");
  verb.add_option("--param", more, "Any other parameter, NAME=VALUE; may be repeated")
      ->allow_extra_args(false);
  verb.add_option("--image", image,
                  "Image to begin with: png, jpeg, webp, gif or bmp (the input \"image\")");
  verb.add_option("--input", inputs,
                  "Any file that the application takes, NAME=FILE; may be repeated")
      ->allow_extra_args(false);
  verb.add_option("--deadline", deadline_s,
                  "Give up after this many seconds (default: the application's)")
      ->check(CLI::NonNegativeNumber);
  verb.add_option("-o,--output", output,
                  "Write the result here (several png frames: NAME_0000.png, …)");
}

absl::StatusOr<google::protobuf::Struct> JobArguments::Parameters() const {
  google::protobuf::Struct parameters;
  auto& fields = *parameters.mutable_fields();
  const auto add_text = [&fields](const char* name, const std::optional<std::string>& value) {
    if (value.has_value()) fields[name].set_string_value(*value);
  };
  const auto add_number = [&fields](const char* name, const auto& value) {
    if (value.has_value()) fields[name].set_number_value(static_cast<double>(*value));
  };
  add_text("prompt", prompt);
  add_text("negative_prompt", negative_prompt);
  add_text("format", format);
  add_number("steps", steps);
  add_number("guidance_scale", guidance);
  add_number("num_frames", frames);
  add_number("width", width);
  add_number("height", height);
  add_number("fps", fps);
  add_number("seed", seed);
  constexpr std::int64_t kMaxExactInteger = std::int64_t{1} << 53;
  if (seed.has_value() && (*seed > kMaxExactInteger || *seed < -kMaxExactInteger)) {
    return Invalid("seed", "must lie within ±2^53: parameters travel as JSON numbers");
  }
  for (const auto& pair : more) {
    const auto equals = pair.find('=');
    if (equals == std::string::npos || equals == 0)
      return Invalid("--param", "\"" + pair + "\" is not NAME=VALUE");
    fields[pair.substr(0, equals)] = ParseValue(pair.substr(equals + 1));
  }
  for (const auto& [name, value] : fields) {
    if (!base::IsUtf8(name) || (value.has_string_value() && !base::IsUtf8(value.string_value()))) {
      return Invalid(base::IsUtf8(name) ? name : "--param", "is not valid UTF-8");
    }
  }
  return parameters;
}

absl::StatusOr<JobInputs> JobArguments::Inputs() const {
  std::vector<std::string> pairs = inputs;
  if (image.has_value()) pairs.insert(pairs.begin(), "image=" + *image);
  return ReadInputs(pairs);
}

std::string NumberedPath(const std::string& path, std::size_t index, std::size_t count) {
  if (count <= 1) return path;
  const std::filesystem::path given(path);
  return (given.parent_path() /
          absl::StrFormat("%s_%04d%s", given.stem().string(), index, given.extension().string()))
      .string();
}

}  // namespace onepiece::terminal
