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

/// The function that tries what private channels let somebody do, in which :name, :insertion, :quote and :'role' stand for
/// what is put in their place.
struct tw_text tw_channel_probe(void);
