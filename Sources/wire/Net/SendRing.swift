import CUring
import Diagnostics
import Glibc
import System

/// Sender that serves many connections with one call to the kernel. It needs io_uring and the permission to use it.
///
/// A batch is prepared, submitted and awaited as a whole. No send outlives `submit`, and no send waits in the kernel:
/// if a socket is full, the kernel reports that immediately, as for a plain send.
@safe
final class SendRing {
    struct Send: BitwiseCopyable {
        var seat: UInt32
        /// First link of the list of pieces that is sent.
        var first: UInt32
        /// Link that follows the gathered pieces; 0 if they reach the end of the list.
        var next: UInt32
        /// Number of bytes that were gathered for the send.
        var byteCount: Int
        /// Number of bytes that the kernel took, or a negated errno. Valid after `submit`.
        var outcome: Int32
    }

    private let ring: UnsafeMutablePointer<io_uring>
    private let messages: UnsafeMutablePointer<msghdr>
    let sends = PlainArray<Send>(capacity: Limits.ringBatch)

    /// Opens an io_uring. Throws if the kernel has no io_uring or denies its use.
    init() throws(SystemError) {
        // SAFETY: zeroed memory that `tw_ring_open` fills; freed here or in `deinit`.
        let ring = UnsafeMutablePointer<io_uring>.allocate(capacity: 1)
        unsafe ring.initialize(to: io_uring())
        let answer = unsafe tw_ring_open(ring, UInt32(Limits.ringBatch))
        guard answer == 0 else {
            unsafe ring.deallocate()
            throw SystemError(operation: "open", subject: "io_uring", code: -answer)
        }
        guard unsafe tw_ring_can_send(ring) == 1 else {
            unsafe tw_ring_close(ring)
            unsafe ring.deallocate()
            throw SystemError(operation: "send by", subject: "io_uring", code: ENOSYS)
        }
        unsafe self.ring = ring
        unsafe messages = .allocate(capacity: Limits.ringBatch)
        unsafe messages.initialize(repeating: msghdr(), count: Limits.ringBatch)
    }

    /// Opens the ring that a loop uses for the given backend. Returns nil if the loop sends with one call per
    /// connection.
    static func open(for backend: SocketSettings.Backend) throws(SystemError) -> SendRing? {
        guard backend != .epoll else { return nil }
        do throws(SystemError) {
            return try SendRing()
        } catch {
            if backend == .ring { throw error }
            Log.shared.info("sending without io_uring", [LogField.reason(error.reason)])
            return nil
        }
    }

    deinit {
        // SAFETY: opened in `init`; no send is under way outside `submit`.
        unsafe tw_ring_close(ring)
        unsafe ring.deallocate()
        unsafe messages.deallocate()
    }

    var isFull: Bool { sends.count == Limits.ringBatch }

    /// Prepares one send of the gathered bytes, which must stay in place until `submit`.
    func add(_ send: Send, _ descriptor: Int32, _ gather: Gather) {
        precondition(!isFull, "a batch has its limit")
        let number = sends.count
        sends.append(send)
        let isPrepared: Int32
        // SAFETY: the ranges and what they point at stay until `submit` returns, as the caller promises; the message
        // lies in the array made for it.
        if let single = unsafe gather.single {
            isPrepared = unsafe tw_ring_send(ring, descriptor, single.baseAddress, single.count, UInt64(number))
        } else {
            let pieces = unsafe gather.batch
            unsafe messages[number].msg_iov = pieces.baseAddress
            unsafe messages[number].msg_iovlen = pieces.count
            isPrepared = unsafe tw_ring_send_pieces(ring, descriptor, messages + number, UInt64(number))
        }
        precondition(isPrepared == 1, "the ring has room for a batch")
    }

    /// Submits the batch and waits until every send has its outcome.
    func submit() {
        var left = sends.count
        while left > 0 {
            // SAFETY: the ring is open.
            let answer = unsafe tw_ring_submit(ring, UInt32(left))
            precondition(
                answer >= 0 || answer == -EINTR || answer == -EAGAIN || answer == -EBUSY,
                "the kernel takes what was prepared")
            var number: UInt64 = 0
            var result: Int32 = 0
            while unsafe tw_ring_next(ring, &number, &result) == 1 {
                sends[Int(number)].outcome = result
                left -= 1
            }
        }
    }
}
