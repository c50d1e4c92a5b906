# Makes these targets, for find_package(rlock) where it is installed, and for CMakeLists.txt in the source:
#
#   rlock::rlock            the headers, hiredis and threads; one file of yours defines RLOCK_IMPLEMENTATION
#   rlock::implementation   the same with the code, as a static library; it is C, or C++ in a project without C
#
# Set before, or with -D:
#
#   RLOCK_NO_REDIS          ON: no Redis store, and no hiredis
#   RLOCK_PARTS             default: all parts of rlock.h; else RLOCK_MINIMAL with these, as in kinds,url. minimal: none
#   RLOCK_HIREDIS           the target, or the library, that is hiredis. Default: a target of that name in your project,
#                           else what pkg-config knows
#   RLOCK_HIREDIS_ASYNC     its header async.h, as in "deps/async.h" with the quotes. Default: that beside the
#                           CMakeLists.txt of the target, else <hiredis/async.h>
#   RLOCK_WITH_POSTGRES, RLOCK_WITH_ZOOKEEPER, RLOCK_WITH_MARIADB
#                           ON: config.url may name that engine: rlock_stores.h; its library is linked
if(TARGET rlock::rlock)
  set(rlock_FOUND TRUE)
  return()
endif()

# CMakeLists.txt says where the source is.
if(rlock_source)
  set(rlock_include "${rlock_source}" "${rlock_source}/adapters" "${rlock_source}/stores")
  set(rlock_code "${rlock_source}/rlock.c")
else()
  get_filename_component(rlock_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  set(rlock_include "${rlock_prefix}/include")
  set(rlock_code "${rlock_prefix}/share/rlock/rlock.c")
endif()

# No imported target of another package is linked: it would be known in this folder of a project only.
set(rlock_FOUND TRUE)
set(rlock_options)
set(rlock_definitions)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
set(rlock_libraries ${CMAKE_THREAD_LIBS_INIT})

if(RLOCK_PARTS)
  list(APPEND rlock_definitions "RLOCK_MINIMAL=")
  string(TOUPPER "${RLOCK_PARTS}" rlock_parts)
  string(REPLACE "," ";" rlock_parts "${rlock_parts}")
  foreach(rlock_part ${rlock_parts})
    if(NOT rlock_part STREQUAL "MINIMAL")
      list(APPEND rlock_definitions "RLOCK_WITH_${rlock_part}=")
    endif()
  endforeach()
endif()

if(RLOCK_NO_REDIS)
  list(APPEND rlock_definitions "RLOCK_NO_REDIS=")
else()
  set(rlock_hiredis "${RLOCK_HIREDIS}")
  foreach(rlock_target hiredis::hiredis hiredis hiredis::hiredis_static hiredis_static)
    if(NOT rlock_hiredis AND TARGET ${rlock_target})
      set(rlock_hiredis ${rlock_target})
    endif()
  endforeach()
  set(rlock_async "${RLOCK_HIREDIS_ASYNC}")
  if(TARGET "${rlock_hiredis}")
    get_target_property(rlock_imported ${rlock_hiredis} IMPORTED)
    get_target_property(rlock_folder ${rlock_hiredis} SOURCE_DIR)
    if(NOT rlock_async AND NOT rlock_imported AND EXISTS "${rlock_folder}/async.h")
      set(rlock_async "\"${rlock_folder}/async.h\"")
    endif()
  endif()
  if(NOT rlock_hiredis)
    find_package(PkgConfig QUIET)
    if(PKG_CONFIG_FOUND)
      pkg_check_modules(RLOCK__HIREDIS QUIET hiredis)
    endif()
    if(RLOCK__HIREDIS_FOUND)
      set(rlock_hiredis ${RLOCK__HIREDIS_LINK_LIBRARIES})
      list(APPEND rlock_include ${RLOCK__HIREDIS_INCLUDE_DIRS})
      list(APPEND rlock_options ${RLOCK__HIREDIS_CFLAGS_OTHER})
    else()
      set(rlock_FOUND FALSE)
      set(rlock_NOT_FOUND_MESSAGE "rlock needs hiredis: its development files, with pkg-config, or a target of yours \
that RLOCK_HIREDIS names. With RLOCK_NO_REDIS=ON it does without.")
      return()
    endif()
  endif()
  if(rlock_async)
    list(APPEND rlock_definitions "RLOCK_HIREDIS_ASYNC=${rlock_async}")
  endif()
  list(APPEND rlock_libraries ${rlock_hiredis})
endif()

# rlock_store(ENGINE MODULE LIBRARY HEADER): where pkg-config does not know the module, the library and its header
function(rlock_store engine module library header)
  if(NOT RLOCK_WITH_${engine})
    return()
  endif()
  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(RLOCK__${engine} QUIET ${module})
  endif()
  if(RLOCK__${engine}_FOUND)
    set(found ${RLOCK__${engine}_LINK_LIBRARIES})
    set(folders ${RLOCK__${engine}_INCLUDE_DIRS})
  else()
    find_library(RLOCK__${engine}_LIBRARY ${library})
    find_path(RLOCK__${engine}_FOLDER ${header})
    if(NOT RLOCK__${engine}_LIBRARY OR NOT RLOCK__${engine}_FOLDER)
      set(rlock_FOUND FALSE PARENT_SCOPE)
      set(rlock_NOT_FOUND_MESSAGE "RLOCK_WITH_${engine} needs ${library} and its header ${header}" PARENT_SCOPE)
      return()
    endif()
    set(found ${RLOCK__${engine}_LIBRARY})
    set(folders ${RLOCK__${engine}_FOLDER})
  endif()
  set(rlock_include ${rlock_include} ${folders} PARENT_SCOPE)
  set(rlock_definitions ${rlock_definitions} "RLOCK_WITH_${engine}=" PARENT_SCOPE)
  set(rlock_libraries ${rlock_libraries} ${found} PARENT_SCOPE)
endfunction()
rlock_store(POSTGRES "libpq>=14" pq libpq-fe.h)
rlock_store(ZOOKEEPER zookeeper_st zookeeper_st zookeeper/zookeeper.h)
rlock_store(MARIADB "libmariadb>=3.3" mariadb mysql.h)
if(NOT rlock_FOUND)
  return()
endif()

add_library(rlock::rlock INTERFACE IMPORTED GLOBAL)
set_target_properties(rlock::rlock PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${rlock_include}"
  INTERFACE_COMPILE_DEFINITIONS "${rlock_definitions}"
  INTERFACE_COMPILE_OPTIONS "${rlock_options}"
  INTERFACE_LINK_LIBRARIES "${rlock_libraries}")

# A callback in C++ may throw: without -fexceptions what is under way would leak.
get_property(rlock_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
add_library(rlock_implementation STATIC EXCLUDE_FROM_ALL "${rlock_code}")
set_target_properties(rlock_implementation PROPERTIES
  OUTPUT_NAME rlock
  C_STANDARD 99
  C_EXTENSIONS ON
  POSITION_INDEPENDENT_CODE ON)
target_compile_options(rlock_implementation PRIVATE -fexceptions)
if(NOT "C" IN_LIST rlock_languages)
  set_source_files_properties("${rlock_code}" PROPERTIES LANGUAGE CXX)
  set_target_properties(rlock_implementation PROPERTIES LINKER_LANGUAGE CXX)
endif()
target_link_libraries(rlock_implementation PUBLIC rlock::rlock)
add_library(rlock::implementation ALIAS rlock_implementation)
