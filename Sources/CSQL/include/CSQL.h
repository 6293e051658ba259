#pragma once
#include <stddef.h>

/// A file of `sql/`, taken into the program when it is built.
struct tw_sql_file {
    const char *name;
    const char *text;
    size_t length;
};

/// Every file, in the order in which they are applied.
const struct tw_sql_file *tw_sql_files(size_t *count);
