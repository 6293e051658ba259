#pragma once
// libnats, loaded when a cluster is configured and not before. The header gives the types; the functions are found by
// name in the loaded library, so that a program without a cluster neither needs nor loads it.
#include <nats/nats.h>
#include <stdbool.h>

/// Functions of the loaded library.
struct tw_nats {
    natsStatus (*options_create)(natsOptions **);
    void (*options_destroy)(natsOptions *);
    natsStatus (*options_servers)(natsOptions *, const char **, int);
    natsStatus (*options_name)(natsOptions *, const char *);
    natsStatus (*options_timeout)(natsOptions *, int64_t);
    natsStatus (*options_user)(natsOptions *, const char *, const char *);
    natsStatus (*options_token)(natsOptions *, const char *);
    natsStatus (*options_credentials)(natsOptions *, const char *, const char *);
    natsStatus (*options_nkey)(natsOptions *, const char *, const char *);
    natsStatus (*options_secure)(natsOptions *, bool);
    natsStatus (*options_authorities)(natsOptions *, const char *);
    natsStatus (*options_certificate)(natsOptions *, const char *, const char *);
    natsStatus (*options_ping)(natsOptions *, int64_t);
    natsStatus (*options_pings_out)(natsOptions *, int);
    natsStatus (*options_reconnects)(natsOptions *, int);
    natsStatus (*options_reconnect_wait)(natsOptions *, int64_t);
    natsStatus (*options_reconnect_jitter)(natsOptions *, int64_t, int64_t);
    natsStatus (*options_reconnect_buffer)(natsOptions *, int);
    natsStatus (*options_send_asap)(natsOptions *, bool);
    natsStatus (*options_write_deadline)(natsOptions *, int64_t);
    natsStatus (*options_on_error)(natsOptions *, natsErrHandler, void *);
    natsStatus (*options_on_disconnect)(natsOptions *, natsConnectionHandler, void *);
    natsStatus (*options_on_reconnect)(natsOptions *, natsConnectionHandler, void *);
    natsStatus (*options_on_close)(natsOptions *, natsConnectionHandler, void *);

    natsStatus (*connect)(natsConnection **, natsOptions *);
    void (*destroy)(natsConnection *);
    natsConnStatus (*status)(natsConnection *);
    natsStatus (*publish)(natsConnection *, natsMsg *);
    natsStatus (*flush)(natsConnection *, int64_t);
    natsStatus (*subscribe)(natsSubscription **, natsConnection *, const char *, natsMsgHandler, void *);
    natsStatus (*connected_url)(natsConnection *, char *, size_t);

    natsStatus (*pending_limits)(natsSubscription *, int, int);
    natsStatus (*subscription_on_complete)(natsSubscription *, natsOnCompleteCB, void *);
    void (*subscription_destroy)(natsSubscription *);

    natsStatus (*message_create)(natsMsg **, const char *, const char *, const char *, int);
    void (*message_destroy)(natsMsg *);
    natsStatus (*header_set)(natsMsg *, const char *, const char *);
    natsStatus (*header_get)(natsMsg *, const char *, const char **);
    const char *(*message_subject)(const natsMsg *);
    const char *(*message_reply)(const natsMsg *);
    const char *(*message_data)(const natsMsg *);
    int (*message_length)(const natsMsg *);

    const char *(*text)(natsStatus);
    const char *(*detail)(natsStatus *);
};

/// Loads the library. Returns nil on success, else what failed; the text lives as long as the process.
const char *tw_nats_load(struct tw_nats *library);
