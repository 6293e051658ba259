import Diagnostics
import System

/// Listening sockets of one loop. The loop stops watching them for a while when the process has no descriptors or
/// memory left.
struct Listeners {
    private(set) var descriptors: [Int32]
    /// Descriptor held in reserve. When descriptors run out, the loop closes it, accepts one connection in its place,
    /// and resets that connection.
    private var reserve: Int32?
    /// Descriptor from which `reserve` is duplicated.
    private let original: Int32
    /// Monotonic time, in nanoseconds, at which the loop watches the listeners again; 0 while it watches them.
    private var restsUntil: UInt64 = 0
    /// Monotonic time, in nanoseconds, of the last refusal that was logged; 0 for none.
    private var lastReminder: UInt64 = 0

    init(_ descriptors: [Int32], duplicating original: Int32) {
        self.descriptors = descriptors
        self.original = original
        reserve = DescriptorTable.duplicate(original)
    }

    subscript(index: Int) -> Int32? { descriptors.indices.contains(index) ? descriptors[index] : nil }

    func watch(by epoll: borrowing Epoll) throws(SystemError) {
        for (index, listener) in descriptors.enumerated() {
            try epoll.add(listener, .readable, key: Key.listener(index: index))
        }
    }

    /// Closes all listeners. The kernel refuses later connections.
    mutating func close() {
        for listener in descriptors { StreamSocket.close(listener) }
        descriptors = []
        restsUntil = 0
    }

    mutating func closeReserve() {
        if let reserve { StreamSocket.close(reserve) }
        reserve = nil
    }

    // MARK: Shortage

    /// Accepts and resets one waiting connection, in place of the reserved descriptor. Without a free descriptor no
    /// connection can be accepted, and the listener would stay readable for ever. Returns false if there is no reserved
    /// descriptor any more.
    mutating func refuseOneConnection(_ listener: Int32) -> Bool {
        guard reserve != nil else { return false }
        closeReserve()
        if case .accepted(let descriptor, _) = StreamSocket.accept(from: listener) { StreamSocket.reset(descriptor) }
        reserve = DescriptorTable.duplicate(original)
        return reserve != nil
    }

    /// Stops watching the listeners for `Limits.acceptRest`.
    mutating func rest(_ epoll: borrowing Epoll, now: UInt64) {
        for listener in descriptors { epoll.remove(listener) }
        restsUntil = now + Limits.acceptRest.nanoseconds
    }

    /// Watches the listeners again if their rest is over.
    mutating func resumeIfDue(_ epoll: borrowing Epoll, now: UInt64) {
        guard restsUntil > 0, now >= restsUntil else { return }
        if reserve == nil { reserve = DescriptorTable.duplicate(original) }
        restsUntil = 0
        do throws(SystemError) { try watch(by: epoll) } catch { rest(epoll, now: now) }
    }

    /// Monotonic time, in nanoseconds, at which the loop watches the listeners again; `.max` if it watches them now.
    var nextDuty: UInt64 { restsUntil > 0 ? restsUntil : .max }

    /// True if a refused connection should be logged: at most once per `Limits.troubleReminderInterval`.
    mutating func isRefusalWorthALine(now: UInt64) -> Bool {
        guard lastReminder == 0 || now - lastReminder > Limits.troubleReminderInterval.nanoseconds else { return false }
        lastReminder = now
        return true
    }
}
