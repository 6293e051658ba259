#include <errno.h>
#include <liburing.h>
#include <sys/socket.h>

// liburing's calls are static inline functions and its structures are large: a few calls of ours hide both.

/// A ring for one thread, made for its way of working where the kernel knows it. 0, or a negative errno.
static inline int tw_ring_open(struct io_uring *ring, unsigned entries) {
    const unsigned tuned[] = {IORING_SETUP_SUBMIT_ALL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN,
                              IORING_SETUP_SUBMIT_ALL};
    int answer = -ENOSYS;
    for (unsigned i = 0; i < sizeof tuned / sizeof tuned[0]; i++) {
        answer = io_uring_queue_init(entries, ring, tuned[i]);
        if (answer != -EINVAL) break;
    }
    return answer;
}

static inline int tw_ring_can_send(struct io_uring *ring) {
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    if (probe == NULL) return 0;
    int can = io_uring_opcode_supported(probe, IORING_OP_SEND) && io_uring_opcode_supported(probe, IORING_OP_SENDMSG);
    io_uring_free_probe(probe);
    return can;
}

static inline int tw_ring_send(struct io_uring *ring, int fd, const void *bytes, size_t count, uint64_t number) {
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    if (entry == NULL) return 0;
    io_uring_prep_send(entry, fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    io_uring_sqe_set_data64(entry, number);
    return 1;
}

static inline int tw_ring_send_pieces(struct io_uring *ring, int fd, const struct msghdr *message, uint64_t number) {
    struct io_uring_sqe *entry = io_uring_get_sqe(ring);
    if (entry == NULL) return 0;
    io_uring_prep_sendmsg(entry, fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
    io_uring_sqe_set_data64(entry, number);
    return 1;
}

/// Hands over what was prepared and waits for so many results. Negative errno on failure.
static inline int tw_ring_submit(struct io_uring *ring, unsigned results) {
    return io_uring_submit_and_wait(ring, results);
}

/// The next result; 0 when there is none.
static inline int tw_ring_next(struct io_uring *ring, uint64_t *number, int *result) {
    struct io_uring_cqe *entry;
    if (io_uring_peek_cqe(ring, &entry) != 0) return 0;
    *number = io_uring_cqe_get_data64(entry);
    *result = entry->res;
    io_uring_cqe_seen(ring, entry);
    return 1;
}

static inline void tw_ring_close(struct io_uring *ring) { io_uring_queue_exit(ring); }
