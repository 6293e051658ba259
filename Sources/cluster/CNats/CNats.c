#include "CNats.h"
#include <dlfcn.h>
#include <stdio.h>

const char *tw_nats_load(struct tw_nats *library) {
    static char failure[256];
    // Debian 12 and 13 name the library by its minor version; a build of one's own by its major version.
    static const char *const names[] = {"libnats.so.3.10", "libnats.so.3.4", "libnats.so.3", "libnats.so"};
    void *handle = NULL;
    for (size_t place = 0; handle == NULL && place < sizeof names / sizeof names[0]; place++)
        handle = dlopen(names[place], RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        snprintf(failure, sizeof failure, "%s", dlerror());
        return failure;
    }
#define FIND(member, name)                                                   \
    *(void **)&library->member = dlsym(handle, #name);                       \
    if (library->member == NULL) {                                           \
        snprintf(failure, sizeof failure, "the library has no " #name);      \
        return failure;                                                      \
    }
    FIND(options_create, natsOptions_Create)
    FIND(options_destroy, natsOptions_Destroy)
    FIND(options_servers, natsOptions_SetServers)
    FIND(options_name, natsOptions_SetName)
    FIND(options_timeout, natsOptions_SetTimeout)
    FIND(options_user, natsOptions_SetUserInfo)
    FIND(options_token, natsOptions_SetToken)
    FIND(options_credentials, natsOptions_SetUserCredentialsFromFiles)
    FIND(options_nkey, natsOptions_SetNKeyFromSeed)
    FIND(options_secure, natsOptions_SetSecure)
    FIND(options_authorities, natsOptions_LoadCATrustedCertificates)
    FIND(options_certificate, natsOptions_LoadCertificatesChain)
    FIND(options_ping, natsOptions_SetPingInterval)
    FIND(options_pings_out, natsOptions_SetMaxPingsOut)
    FIND(options_reconnects, natsOptions_SetMaxReconnect)
    FIND(options_reconnect_wait, natsOptions_SetReconnectWait)
    FIND(options_reconnect_jitter, natsOptions_SetReconnectJitter)
    FIND(options_reconnect_buffer, natsOptions_SetReconnectBufSize)
    FIND(options_send_asap, natsOptions_SetSendAsap)
    FIND(options_write_deadline, natsOptions_SetWriteDeadline)
    FIND(options_on_error, natsOptions_SetErrorHandler)
    FIND(options_on_disconnect, natsOptions_SetDisconnectedCB)
    FIND(options_on_reconnect, natsOptions_SetReconnectedCB)
    FIND(options_on_close, natsOptions_SetClosedCB)
    FIND(connect, natsConnection_Connect)
    FIND(destroy, natsConnection_Destroy)
    FIND(status, natsConnection_Status)
    FIND(publish, natsConnection_PublishMsg)
    FIND(flush, natsConnection_FlushTimeout)
    FIND(subscribe, natsConnection_Subscribe)
    FIND(connected_url, natsConnection_GetConnectedUrl)
    FIND(pending_limits, natsSubscription_SetPendingLimits)
    FIND(subscription_on_complete, natsSubscription_SetOnCompleteCB)
    FIND(subscription_destroy, natsSubscription_Destroy)
    FIND(message_create, natsMsg_Create)
    FIND(message_destroy, natsMsg_Destroy)
    FIND(header_set, natsMsgHeader_Set)
    FIND(header_get, natsMsgHeader_Get)
    FIND(message_subject, natsMsg_GetSubject)
    FIND(message_reply, natsMsg_GetReply)
    FIND(message_data, natsMsg_GetData)
    FIND(message_length, natsMsg_GetDataLength)
    FIND(text, natsStatus_GetText)
    FIND(detail, nats_GetLastError)
#undef FIND
    return NULL;
}
