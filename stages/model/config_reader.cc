#include "stages/model/config_reader.h"

#include <cmath>

#include "cluster/base/status.h"

namespace onepiece::model {

bool ConfigReader::Has(const std::string& field) const {
  const auto found = config_.find(field);
  return found != config_.end() && !found->is_null();
}

void ConfigReader::Unimplemented(const std::string& field, const std::string& what) {
  if (!status_.ok()) return;
  status_ = base::MakeError(absl::StatusCode::kUnimplemented, "UNSUPPORTED_CONFIG",
                            field + ": " + what, {{"field", field}});
}

void ConfigReader::Bad(const std::string& field, const std::string& what) {
  if (!status_.ok()) return;
  status_ = base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG", field + ": " + what,
                            {{"field", field}});
}

std::int64_t ConfigReader::Int(const std::string& field, std::int64_t low, std::int64_t high) {
  if (!Has(field)) {
    Bad(field, "is missing");
    return low;
  }
  const auto& value = config_[field];
  // Unsigned numbers past 63 bits must not wrap into the range.
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                        : value.is_number_integer();
  if (!fits || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
    Bad(field, "must be an integer from " + std::to_string(low) + " to " + std::to_string(high));
    return low;
  }
  return value.get<std::int64_t>();
}

std::int64_t ConfigReader::IntOr(const std::string& field, std::int64_t low, std::int64_t high,
                                 std::int64_t fallback) {
  return Has(field) ? Int(field, low, high) : fallback;
}

double ConfigReader::PositiveOr(const std::string& field, double fallback) {
  if (!Has(field)) return fallback;
  const auto& value = config_[field];
  if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
    Bad(field, "must be a number above 0");
    return fallback;
  }
  return value.get<double>();
}

std::string ConfigReader::StringOr(const std::string& field, const std::string& fallback) {
  if (!Has(field)) return fallback;
  if (!config_[field].is_string()) {
    Bad(field, "must be a string");
    return fallback;
  }
  return config_[field].get<std::string>();
}

bool ConfigReader::BoolOr(const std::string& field, bool fallback) {
  if (!Has(field)) return fallback;
  if (!config_[field].is_boolean()) {
    Bad(field, "must be true or false");
    return fallback;
  }
  return config_[field].get<bool>();
}

std::vector<std::int64_t> ConfigReader::Ints(const std::string& field, std::size_t most,
                                             std::int64_t low, std::int64_t high) {
  std::vector<std::int64_t> values;
  const bool list = Has(field) && config_[field].is_array() && config_[field].size() <= most;
  for (const auto& value : list ? config_[field] : nlohmann::json::array()) {
    const bool fits = value.is_number_integer() &&
                      value.get<double>() >= static_cast<double>(low) &&
                      value.get<double>() <= static_cast<double>(high);
    if (fits) values.push_back(value.get<std::int64_t>());
  }
  if (!list || values.size() != config_[field].size()) {
    Bad(field, "must be a list of at most " + std::to_string(most) + " integers from " +
                   std::to_string(low) + " to " + std::to_string(high));
    values.clear();
  }
  return values;
}

std::vector<bool> ConfigReader::Bools(const std::string& field, std::size_t most) {
  std::vector<bool> values;
  const bool list = Has(field) && config_[field].is_array() && config_[field].size() <= most;
  for (const auto& value : list ? config_[field] : nlohmann::json::array()) {
    if (value.is_boolean()) values.push_back(value.get<bool>());
  }
  if (!list || values.size() != config_[field].size()) {
    Bad(field, "must be a list of at most " + std::to_string(most) + " times true or false");
    values.clear();
  }
  return values;
}

std::vector<double> ConfigReader::Numbers(const std::string& field, std::size_t most) {
  std::vector<double> values;
  const bool list = Has(field) && config_[field].is_array() && config_[field].size() <= most;
  for (const auto& value : list ? config_[field] : nlohmann::json::array()) {
    if (value.is_number() && std::isfinite(value.get<double>()))
      values.push_back(value.get<double>());
  }
  if (!list || values.size() != config_[field].size()) {
    Bad(field, "must be a list of at most " + std::to_string(most) + " numbers");
    values.clear();
  }
  return values;
}

}  // namespace onepiece::model
