# find_package(OnePieceStageSdk) defines the target OnePiece::StageSdk, and onepiece_stage_plugin() to build a plug-in
# with it. With COMPONENTS Model it also finds LibTorch and defines the target OnePiece::Model, what every model
# family needs.
include(CMakeFindDependencyMacro)
find_dependency(absl)
find_dependency(spdlog)
include(${CMAKE_CURRENT_LIST_DIR}/OnePieceStageSdkTargets.cmake)
foreach(component IN LISTS OnePieceStageSdk_FIND_COMPONENTS)
  if(NOT component STREQUAL Model OR NOT EXISTS ${CMAKE_CURRENT_LIST_DIR}/OnePieceModelTargets.cmake)
    set(OnePieceStageSdk_${component}_FOUND FALSE)
    if(OnePieceStageSdk_FIND_REQUIRED_${component})
      set(OnePieceStageSdk_FOUND FALSE)
      set(OnePieceStageSdk_NOT_FOUND_MESSAGE "the installed SDK has no component ${component}")
    endif()
    continue()
  endif()
  find_dependency(Torch)
  find_dependency(nlohmann_json)
  find_dependency(OpenSSL)
  find_dependency(PkgConfig)
  pkg_check_modules(ICU REQUIRED IMPORTED_TARGET icu-uc icu-i18n)
  pkg_check_modules(LIBAV REQUIRED IMPORTED_TARGET libavformat libavcodec libswscale libavutil)
  include(${CMAKE_CURRENT_LIST_DIR}/OnePieceModelTargets.cmake)
  set(OnePieceStageSdk_Model_FOUND TRUE)
endforeach()

# onepiece_stage_plugin(NAME SOURCES .. LIBRARIES ..): builds the plug-in NAME.so. It hides the symbols of the libraries
# that it links in, because the program that loads the plug-in has its own copies of them.
function(onepiece_stage_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 A "" "" "SOURCES;LIBRARIES")
  add_library(${name} MODULE ${A_SOURCES})
  target_link_libraries(${name} PRIVATE OnePiece::StageSdk ${A_LIBRARIES})
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(${name} PROPERTIES PREFIX "" POSITION_INDEPENDENT_CODE ON
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()
