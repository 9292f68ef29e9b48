# Compiles kernels with their schedules, again whenever something that they are made of changed: the spec, further specs,
# tables in files, the source, its headers. With the generators Ninja and Unix Makefiles.
#
#   schedc_add_kernel(TARGET name SPEC file ARCH architecture... [EMIT form] [INCLUDE_DIRECTORIES folder...]
#                     [SERVER url] [LAUNCHER variable] [DECLARATIONS variable] [OUTPUT variable])
#
# adds a target `name`, a part of `all`, that makes name.ARCH.cubin with its manifest name.ARCH.cubin.json in the current
# binary folder. Relative paths are those of the current source folder. In variables it leaves paths:
#
#   EMIT                 another form than cubin: ptx, header, or for a kernel that is linked, object or ltoir
#   INCLUDE_DIRECTORIES  where else headers of the source are
#   SERVER               a service that compiles; where it cannot be reached, that is done here
#   LAUNCHER             also make name_launcher.h, which launches the kernel in C++, for the first architecture
#   DECLARATIONS         also make name_declarations.cuh, which a kernel includes that is linked with the schedule
#   OUTPUT               the artifacts, in the order of the architectures

cmake_policy(VERSION 3.20...3.31)  # CMP0116, 3.20: depfiles with any generator

find_program(SCHEDC_EXECUTABLE schedc DOC "The compiler of schedules" REQUIRED)

function(schedc_add_kernel)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;SPEC;EMIT;SERVER;LAUNCHER;DECLARATIONS;OUTPUT"
                        "ARCH;INCLUDE_DIRECTORIES")
  foreach(needed TARGET SPEC ARCH)
    if(NOT arg_${needed})
      message(FATAL_ERROR "schedc_add_kernel: ${needed} is missing")
    endif()
  endforeach()
  if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "schedc_add_kernel: what is ${arg_UNPARSED_ARGUMENTS}${arg_KEYWORDS_MISSING_VALUES}?")
  endif()
  foreach(arch IN LISTS arg_ARCH)
    if(NOT arch MATCHES "^sm_[0-9]+[a-z]?$")
      message(FATAL_ERROR "schedc_add_kernel: what is ${arch}, which is no architecture?")
    endif()
  endforeach()

  get_filename_component(spec "${arg_SPEC}" ABSOLUTE)
  set(include)
  foreach(folder IN LISTS arg_INCLUDE_DIRECTORIES)
    get_filename_component(folder "${folder}" ABSOLUTE)
    list(APPEND include -I "${folder}")
  endforeach()
  set(server)
  if(arg_SERVER)
    set(server --server "${arg_SERVER}")
  endif()

  if(NOT arg_EMIT)
    set(arg_EMIT cubin)
  endif()
  set(suffix ${arg_EMIT})
  if(arg_EMIT STREQUAL "object")
    set(suffix o)
  elseif(arg_EMIT STREQUAL "header")
    set(suffix cuh)
  endif()

  set(artifacts)
  foreach(arch IN LISTS arg_ARCH)
    set(artifact "${CMAKE_CURRENT_BINARY_DIR}/${arg_TARGET}.${arch}.${suffix}")
    add_custom_command(
      OUTPUT "${artifact}" "${artifact}.json"
      COMMAND "${SCHEDC_EXECUTABLE}" compile "${spec}" --arch ${arch} --emit ${arg_EMIT} ${include} ${server}
              -o "${artifact}" --depfile "${artifact}.d"
      DEPENDS "${spec}" "${SCHEDC_EXECUTABLE}"
      DEPFILE "${artifact}.d"
      COMMENT "Compiling ${arg_TARGET} for ${arch}"
      VERBATIM)
    list(APPEND artifacts "${artifact}")
  endforeach()

  list(GET arg_ARCH 0 arch)
  list(GET artifacts 0 artifact)
  set(headers)
  foreach(text IN ITEMS launcher.h declarations.cuh)
    get_filename_component(kind ${text} NAME_WE)
    string(TOUPPER ${kind} keyword)
    if(arg_${keyword})
      set(header "${CMAKE_CURRENT_BINARY_DIR}/${arg_TARGET}_${text}")
      add_custom_command(
        OUTPUT "${header}"
        COMMAND "${SCHEDC_EXECUTABLE}" emit "${spec}" --to ${kind} --arch ${arch} ${include} -o "${header}"
        DEPENDS "${artifact}"  # which depends on all that the header does
        COMMENT "Printing ${arg_TARGET}_${text}"
        VERBATIM)
      list(APPEND headers "${header}")
      set(${arg_${keyword}} "${header}" PARENT_SCOPE)
    endif()
  endforeach()

  add_custom_target(${arg_TARGET} ALL DEPENDS ${artifacts} ${headers})
  if(arg_OUTPUT)
    set(${arg_OUTPUT} "${artifacts}" PARENT_SCOPE)
  endif()
endfunction()
