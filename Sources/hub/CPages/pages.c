// The files of the web console, byte for byte, so that one binary carries what it serves. A file that is added to console/
// is added here, its scripts in the order in which they use each other; a test says so when one is forgotten.
#include "CPages.h"

static const unsigned char index_html[] = {
#embed "console/index.html"
};
static const unsigned char console_css[] = {
#embed "console/console.css"
};
static const unsigned char icon_svg[] = {
#embed "console/icon.svg"
};
static const unsigned char words_js[] = {
#embed "console/words.js"
};
static const unsigned char view_js[] = {
#embed "console/view.js"
};
static const unsigned char source_js[] = {
#embed "console/source.js"
};
static const unsigned char parts_js[] = {
#embed "console/parts.js"
};
static const unsigned char changes_js[] = {
#embed "console/changes.js"
};
static const unsigned char people_js[] = {
#embed "console/people.js"
};
static const unsigned char house_js[] = {
#embed "console/house.js"
};
static const unsigned char samples_js[] = {
#embed "console/samples.js"
};
static const unsigned char app_js[] = {
#embed "console/app.js"
};

static const struct tw_page pages[] = {
    {"index.html", index_html, sizeof index_html},
    {"console.css", console_css, sizeof console_css},
    {"icon.svg", icon_svg, sizeof icon_svg},
    {"words.js", words_js, sizeof words_js},
    {"view.js", view_js, sizeof view_js},
    {"source.js", source_js, sizeof source_js},
    {"parts.js", parts_js, sizeof parts_js},
    {"changes.js", changes_js, sizeof changes_js},
    {"people.js", people_js, sizeof people_js},
    {"house.js", house_js, sizeof house_js},
    {"samples.js", samples_js, sizeof samples_js},
    {"app.js", app_js, sizeof app_js},
};

const struct tw_page *tw_pages(size_t *count) {
    *count = sizeof pages / sizeof pages[0];
    return pages;
}
