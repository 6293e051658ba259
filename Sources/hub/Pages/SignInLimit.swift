import Synchronization
import System

/// Limit of failed sign-ins to the web console: some a minute for each network address, and more for all together.
final class SignInLimit: Sendable {
    private struct Minute {
        var end: Int64 = 0
        var failures: [UInt64: Int] = [:]
        var sum = 0
    }

    static let mostOfOne = 10
    static let mostOfAll = 200
    private static let seconds: Int64 = 60

    private let minute = Mutex(Minute())

    /// Returns the number of seconds after which the address may try again; nil if it may try now.
    func delay(_ peer: SocketAddress, at now: Int64) -> Int64? {
        minute.withLock { minute in
            guard now < minute.end else { return nil }
            let isAllowed = minute.sum < Self.mostOfAll && minute.failures[peer.network, default: 0] < Self.mostOfOne
            return isAllowed ? nil : minute.end - now
        }
    }

    func fail(_ peer: SocketAddress, at now: Int64) {
        minute.withLock { minute in
            if now >= minute.end { minute = Minute(end: now + Self.seconds) }
            minute.sum += 1
            minute.failures[peer.network, default: 0] += 1
            assert(minute.failures.count <= minute.sum, "each address has failed at least once")
        }
    }
}
