#pragma once
#include <stddef.h>

/// A file of the web console that was taken into the program when it was built.
struct tw_page {
    const char *name;
    const unsigned char *bytes;
    size_t length;
};

/// Every file of the web console. The first one is the page that loads the others.
const struct tw_page *tw_pages(size_t *count);
