#include "CTexts.h"

static const char statement[] = {
#embed "channel_probe.sql"
};

struct tw_text tw_channel_probe(void) {
    return (struct tw_text){"channel_probe.sql", statement, sizeof statement};
}
