#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

// OpenSSL's settings of a context are macros, and its callbacks want C.

/// A key that is protected by a password would make OpenSSL ask for it on the terminal: it is refused instead.
static int tw_no_password(char *buffer, int size, int is_writing, void *context) {
    (void)buffer, (void)size, (void)is_writing, (void)context;
    return -1;
}

/// Of what a client offers we speak HTTP/1.1; a client that offers other things only is left without an answer.
static int tw_choose_http(SSL *ssl, const unsigned char **out, unsigned char *out_length, const unsigned char *in,
                          unsigned in_length, void *context) {
    (void)ssl, (void)context;
    for (unsigned at = 0; at < in_length && at + 1 + in[at] <= in_length; at += 1 + in[at]) {
        if (in[at] == 8 && memcmp(in + at + 1, "http/1.1", 8) == 0) {
            *out = in + at + 1;
            *out_length = 8;
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_NOACK;
}

static inline SSL_CTX *tw_server_context(void) {
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL) return NULL;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    // Idle connections keep no buffers; what could not be written may be offered again from another place.
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // A peer that just closes its socket has finished: WebSocket says itself where a message ends.
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    // Resuming costs as much as a handshake with an elliptic curve, and a cache on our side costs memory.
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 1);
    SSL_CTX_set_default_passwd_cb(context, tw_no_password);
    SSL_CTX_set_alpn_select_cb(context, tw_choose_http, NULL);
    return context;
}

static inline int tw_use_key(SSL_CTX *context, const char *path) {
    return SSL_CTX_use_PrivateKey_file(context, path, SSL_FILETYPE_PEM);
}

/// A client's: the system's certificates are trusted, and those of a file if one is named.
static inline SSL_CTX *tw_client_context(const char *trusted) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL) return NULL;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_set_default_verify_paths(context) != 1 ||
        (trusted != NULL && SSL_CTX_load_verify_locations(context, trusted, NULL) != 1)) {
        SSL_CTX_free(context);
        return NULL;
    }
    return context;
}

/// The certificate has to be this host's: a name, which the server is told, or an address.
static inline int tw_expect_host(SSL *ssl, const char *host) {
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1) return 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

/// As OpenSSL's own, but that a peer that is gone is an error of the write: a signal would end the program that is writing,
/// which for a library is somebody else's.
static int tw_socket_write(BIO *bio, const char *bytes, int count) {
    int descriptor = -1;
    BIO_get_fd(bio, &descriptor);
    BIO_clear_retry_flags(bio);
    int sent = (int)send(descriptor, bytes, (size_t)count, MSG_NOSIGNAL);
    if (sent <= 0 && BIO_sock_should_retry(sent)) BIO_set_retry_write(bio);
    return sent;
}

/// Made once; of threads that come at the same time the first one's is everybody's.
static BIO_METHOD *tw_socket_method(void) {
    static BIO_METHOD *made;
    BIO_METHOD *first = __atomic_load_n(&made, __ATOMIC_ACQUIRE);
    if (first != NULL) return first;
    const BIO_METHOD *own = BIO_s_socket();
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOCKET, "socket without signals");
    if (method == NULL) return NULL;
    int is_whole = BIO_meth_set_write(method, tw_socket_write) == 1 &&
                   BIO_meth_set_read(method, BIO_meth_get_read(own)) == 1 &&
                   BIO_meth_set_puts(method, BIO_meth_get_puts(own)) == 1 &&
                   BIO_meth_set_ctrl(method, BIO_meth_get_ctrl(own)) == 1 &&
                   BIO_meth_set_create(method, BIO_meth_get_create(own)) == 1 &&
                   BIO_meth_set_destroy(method, BIO_meth_get_destroy(own)) == 1;
    if (is_whole && __atomic_compare_exchange_n(&made, &first, method, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return method;
    BIO_meth_free(method);
    return first;
}

/// In place of `SSL_set_fd`; the socket is not closed with the session.
static inline int tw_set_socket(SSL *ssl, int descriptor) {
    BIO_METHOD *method = tw_socket_method();
    BIO *bio = method == NULL ? NULL : BIO_new(method);
    if (bio == NULL) return 0;
    BIO_set_fd(bio, descriptor, BIO_NOCLOSE);
    SSL_set_bio(ssl, bio, bio);
    return 1;
}
