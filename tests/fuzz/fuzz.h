/* fuzz.h - what every fuzzer has: one input, a broken rule, and a main that runs the corpus
 *
 * A fuzzer is LLVMFuzzerTestOneInput. With -DFUZZING its main is libFuzzer's (tools/fuzz); without,
 * it is the one below, which runs the files and folders given to it, prints TAP, and so makes
 * regression tests of a corpus. A broken rule ends the program, as a crash does; the file that was
 * under way is the last one named. TRACE=1 in the environment prints what happens.
 */

#ifndef FUZZ_H
#define FUZZ_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sim_failed(const char *format, ...) {
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "BROKEN: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

#ifndef FUZZING

static int fuzz_files;

/* The input has a block of its own size, so that a read behind its end is seen. */
static inline void fuzz_file(const char *target, const char *path) {
    FILE *file = fopen(path, "rb");
    struct stat about;
    uint8_t *data;
    size_t size;
    if (file == NULL || fstat(fileno(file), &about) != 0) {
        printf("not ok %d - %s: %s cannot be read\n", ++fuzz_files, target, path);
        exit(1);
    }
    size = (size_t)about.st_size;
    data = (uint8_t *)malloc(size > 0 ? size : 1);
    if (fread(data, 1, size, file) != size) {
        abort();
    }
    fclose(file);
    printf("# %s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    printf("ok %d - %s: %s\n", ++fuzz_files, target, path);
}

static inline void fuzz_path(const char *target, const char *path) {
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort), i;
    if (count < 0) {
        fuzz_file(target, path);
    }
    for (i = 0; i < count; i++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            fuzz_file(target, inner);
        }
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/');
    const char *target = slash != NULL ? slash + 1 : argv[0];
    int i;
    for (i = 1; i < argc; i++) {
        fuzz_path(target, argv[i]);
    }
    printf("1..%d\n", fuzz_files);
    if (fuzz_files == 0) {
        fprintf(stderr, "usage: %s FILE|FOLDER...\n", target);
    }
    return fuzz_files == 0;
}

#endif

static inline void fuzz_begin(void) {
    sim.tracing = getenv("TRACE") != NULL;
}

#endif /* FUZZ_H */
