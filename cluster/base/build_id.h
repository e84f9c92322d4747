// What identifies the build of this program.
#pragma once

#include <string_view>

namespace onepiece::base {

/// The commit of the clone in which the program was built, such as "4d5ac70d1f3e", with "-dirty"
/// when files were changed. Without a clone it is the version of the release, such as "0.1.0".
std::string_view BuildId();

}  // namespace onepiece::base
