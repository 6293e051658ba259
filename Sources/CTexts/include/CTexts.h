#pragma once
#include <stddef.h>

/// A file that was taken into the program when it was built.
struct tw_text {
    const char *name;
    const char *text;
    size_t length;
};

/// Every file of `sql/`, in the order in which they are applied.
const struct tw_text *tw_sql_files(size_t *count);

/// The description of the HTTP interface, in which VERSION stands for the program's.
struct tw_text tw_openapi(void);
