import Diagnostics
import System

/// Listening sockets of one loop, which rest while the process has no room for connections.
struct Listeners {
    private(set) var descriptors: [Int32]
    /// Descriptor held in reserve. When descriptors run out, it makes room to accept one connection and close it.
    private var reserve: Int32?
    /// Descriptor of which `reserve` is a duplicate.
    private let original: Int32
    /// Time at which the rest ends; 0 without a rest.
    private var restsUntil: UInt64 = 0
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

    /// Closes one listener after the other. The kernel refuses later connections.
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

    /// Accepts and closes one waiting connection, with the descriptor held in reserve. Without a free descriptor no
    /// connection can be accepted, and the listener would stay readable for ever. Returns false if the reserve is gone.
    mutating func turnOneAway(_ listener: Int32) -> Bool {
        guard reserve != nil else { return false }
        closeReserve()
        if case .accepted(let descriptor, _) = StreamSocket.accept(from: listener) { StreamSocket.reset(descriptor) }
        reserve = DescriptorTable.duplicate(original)
        return reserve != nil
    }

    /// Stops watching the listeners for a while.
    mutating func rest(_ epoll: borrowing Epoll, now: UInt64) {
        for listener in descriptors { epoll.remove(listener) }
        restsUntil = now + Limits.acceptRest.nanoseconds
    }

    /// Watches the listeners again when their rest is over.
    mutating func resumeIfDue(_ epoll: borrowing Epoll, now: UInt64) {
        guard restsUntil > 0, now >= restsUntil else { return }
        if reserve == nil { reserve = DescriptorTable.duplicate(original) }
        restsUntil = 0
        do throws(SystemError) { try watch(by: epoll) } catch { rest(epoll, now: now) }
    }

    /// Time at which a rest ends; `.max` without a rest.
    var nextDuty: UInt64 { restsUntil > 0 ? restsUntil : .max }

    /// True once in a while: the refusal of a connection is then worth a line in the log.
    mutating func isRefusalWorthALine(now: UInt64) -> Bool {
        guard lastReminder == 0 || now - lastReminder > Limits.troubleReminderInterval.nanoseconds else { return false }
        lastReminder = now
        return true
    }
}
