/* documented.h - what the document of an engine says, so that a test can run it
 *
 * A statement that a reader is to paste rots unseen when no test runs it.
 */

#ifndef TESTS_ENGINES_DOCUMENTED_H
#define TESTS_ENGINES_DOCUMENTED_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The query on a line of its own in a document; "" if there is none. It is valid until the next
 * call. */
static inline const char *documented_query(const char *file) {
    static char line[256];
    const char *found = "";
    FILE *in = fopen(file, "r");
    while (in != NULL && *found == 0 && fgets(line, sizeof line, in) != NULL) {
        if (strncmp(line, "    SELECT ", 11) == 0) {
            line[strcspn(line, ";\n")] = 0;
            found = line + 4;
        }
    }
    if (in != NULL) {
        fclose(in);
    }
    return found;
}

/* True if a document has these words on one line. */
static inline bool documented(const char *file, const char *words) {
    char line[256];
    bool found = false;
    FILE *in = fopen(file, "r");
    while (in != NULL && !found && fgets(line, sizeof line, in) != NULL) {
        found = strstr(line, words) != NULL;
    }
    if (in != NULL) {
        fclose(in);
    }
    return found;
}

#endif
