import CLinux
import Glibc

/// Event that one thread signals and other threads wait for, based on an eventfd. The event stays signalled until
/// `clear`.
public final class Wake: Sendable {
    private let owned: OwnedDescriptor
    private let isInEveryTable: Bool

    /// Creates an event that is not signalled.
    ///
    /// - Parameter inEveryTable: true if threads with their own descriptor tables use the event and keep its
    ///   descriptor.
    public init(inEveryTable: Bool = false) throws(SystemError) {
        let descriptor = try systemCall("eventfd", "") { eventfd(0, Int32(EFD_CLOEXEC) | Int32(EFD_NONBLOCK)) }
        owned = OwnedDescriptor(descriptor)
        isInEveryTable = inEveryTable
    }

    public var descriptor: Int32 { isInEveryTable ? owned.numberInEveryTable : owned.number }

    public func ring() {
        var one: UInt64 = 1
        // SAFETY: eight bytes of a local. The only possible failure, a full counter, means it is rung already.
        _ = unsafe write(descriptor, &one, 8)
    }

    public func clear() {
        var count: UInt64 = 0
        // SAFETY: eight bytes of a local; an empty counter answers EAGAIN, which is what we want.
        _ = unsafe read(descriptor, &count, 8)
    }

    public var isRung: Bool { Poll.wait(for: descriptor, timeoutMilliseconds: 0) }

    /// Waits until the event is signalled, at most for the given time. Returns true if it is signalled.
    @discardableResult
    public func sleep(milliseconds: Int) -> Bool {
        Poll.wait(for: descriptor, timeoutMilliseconds: Int32(milliseconds))
    }
}

/// Functions that wait for one or two descriptors.
public enum Poll {
    /// Waits until `descriptor` is readable. Returns false if it is not within the time.
    public static func wait(for descriptor: Int32, timeoutMilliseconds: Int32) -> Bool {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        // SAFETY: one entry, a local.
        return unsafe poll(&entry, 1, timeoutMilliseconds) > 0
    }

    public struct Ready: Sendable {
        public var socket: Bool
        public var interrupt: Bool
    }

    /// Waits until the socket is readable (or writable, if `forWriting` is true), the interrupt is signalled, or the
    /// time has passed.
    public static func wait(
        socket: Int32, forWriting: Bool = false, interrupt: Wake?, timeoutMilliseconds: Int32
    ) -> Ready {
        let events = Int16(POLLIN) | (forWriting ? Int16(POLLOUT) : 0)
        var entries = (
            pollfd(fd: socket, events: events, revents: 0),
            pollfd(fd: interrupt?.descriptor ?? -1, events: Int16(POLLIN), revents: 0)
        )
        // SAFETY: two entries, side by side in a local tuple.
        let count = unsafe withUnsafeMutablePointer(to: &entries) { pair in
            unsafe pair.withMemoryRebound(to: pollfd.self, capacity: 2) { unsafe poll($0, 2, timeoutMilliseconds) }
        }
        guard count > 0 else { return Ready(socket: false, interrupt: false) }
        return Ready(socket: entries.0.revents != 0, interrupt: entries.1.revents != 0)
    }
}
