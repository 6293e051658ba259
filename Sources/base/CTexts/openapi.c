#include "CTexts.h"

static const char document[] = {
#embed "openapi.json"
};

struct tw_text tw_openapi(void) {
    return (struct tw_text){"openapi.json", document, sizeof document};
}
