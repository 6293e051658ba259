// The files of sql/, byte for byte, so that one binary carries what it applies. A file that is added to sql/ is added
// here; a tidy test says so when it is forgotten.
#include "CTexts.h"

static const char roles[] = {
#embed "../../../sql/010_roles.sql"
};
static const char auth[] = {
#embed "../../../sql/020_auth.sql"
};
static const char publication[] = {
#embed "../../../sql/030_publication.sql"
};
static const char hub_role[] = {
#embed "../../../sql/040_hub_role.sql"
};
static const char policy_role[] = {
#embed "../../../sql/045_policy_role.sql"
};
static const char ddl_messages[] = {
#embed "../../../sql/050_ddl_messages.sql"
};
static const char realtime_schema[] = {
#embed "../../../sql/realtime/010_schema.sql"
};
static const char realtime_types[] = {
#embed "../../../sql/realtime/020_types.sql"
};
static const char realtime_messages[] = {
#embed "../../../sql/realtime/030_messages.sql"
};
static const char realtime_broadcast[] = {
#embed "../../../sql/realtime/040_broadcast.sql"
};
static const char realtime_filters[] = {
#embed "../../../sql/realtime/050_filters.sql"
};
static const char realtime_subscription[] = {
#embed "../../../sql/realtime/060_subscription.sql"
};
static const char realtime_changes[] = {
#embed "../../../sql/realtime/070_changes.sql"
};
static const char realtime_publication[] = {
#embed "../../../sql/realtime/080_publication.sql"
};
static const char realtime_upkeep[] = {
#embed "../../../sql/realtime/090_upkeep.sql"
};
static const char expense_sync[] = {
#embed "../../../sql/scenarios/expense_sync.sql"
};
static const char friendships[] = {
#embed "../../../sql/scenarios/friendships.sql"
};
static const char operation_map[] = {
#embed "../../../sql/scenarios/operation_map.sql"
};
static const char real_estate[] = {
#embed "../../../sql/scenarios/real_estate.sql"
};
static const char social_feed[] = {
#embed "../../../sql/scenarios/social_feed.sql"
};
static const char demo[] = {
#embed "../../../sql/demo/demo.sql"
};
static const char actors[] = {
#embed "../../../sql/actors/010_actors.sql"
};
static const char incident[] = {
#embed "../../../sql/incident/office.sql"
};

static const struct tw_text files[] = {
    {"010_roles.sql", roles, sizeof roles},
    {"020_auth.sql", auth, sizeof auth},
    {"030_publication.sql", publication, sizeof publication},
    {"040_hub_role.sql", hub_role, sizeof hub_role},
    {"045_policy_role.sql", policy_role, sizeof policy_role},
    {"050_ddl_messages.sql", ddl_messages, sizeof ddl_messages},
    {"realtime/010_schema.sql", realtime_schema, sizeof realtime_schema},
    {"realtime/020_types.sql", realtime_types, sizeof realtime_types},
    {"realtime/030_messages.sql", realtime_messages, sizeof realtime_messages},
    {"realtime/040_broadcast.sql", realtime_broadcast, sizeof realtime_broadcast},
    {"realtime/050_filters.sql", realtime_filters, sizeof realtime_filters},
    {"realtime/060_subscription.sql", realtime_subscription, sizeof realtime_subscription},
    {"realtime/070_changes.sql", realtime_changes, sizeof realtime_changes},
    {"realtime/080_publication.sql", realtime_publication, sizeof realtime_publication},
    {"realtime/090_upkeep.sql", realtime_upkeep, sizeof realtime_upkeep},
    {"scenarios/expense_sync.sql", expense_sync, sizeof expense_sync},
    {"scenarios/friendships.sql", friendships, sizeof friendships},
    {"scenarios/operation_map.sql", operation_map, sizeof operation_map},
    {"scenarios/real_estate.sql", real_estate, sizeof real_estate},
    {"scenarios/social_feed.sql", social_feed, sizeof social_feed},
    {"demo/demo.sql", demo, sizeof demo},
    {"actors/010_actors.sql", actors, sizeof actors},
    {"incident/office.sql", incident, sizeof incident},
};

const struct tw_text *tw_sql_files(size_t *count) {
    *count = sizeof files / sizeof files[0];
    return files;
}
