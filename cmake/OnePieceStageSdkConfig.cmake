# find_package(OnePieceStageSdk): the target OnePiece::StageSdk, and onepiece_stage_plugin() to build a plug-in with it.
include(CMakeFindDependencyMacro)
find_dependency(absl)
find_dependency(spdlog)
include(${CMAKE_CURRENT_LIST_DIR}/OnePieceStageSdkTargets.cmake)

# onepiece_stage_plugin(NAME SOURCES .. LIBRARIES ..): NAME.so. What is linked in stays inside: the program that loads
# the plug-in has a copy of its own.
function(onepiece_stage_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;LIBRARIES")
  add_library(${name} MODULE ${A_SOURCES})
  target_link_libraries(${name} PRIVATE OnePiece::StageSdk ${A_LIBRARIES})
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(${name} PROPERTIES PREFIX "" POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
