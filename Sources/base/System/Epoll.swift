import CLinux
import Glibc

/// Instance of epoll, which reports the descriptors that are ready among many.
@safe
public struct Epoll: ~Copyable {
    /// Events for which epoll watches a descriptor, or which it reports.
    public struct Events: OptionSet, Sendable {
        public let rawValue: UInt32

        public init(rawValue: UInt32) { self.rawValue = rawValue }

        public static let readable = Events(rawValue: 0x001)
        public static let writable = Events(rawValue: 0x004)
        /// Error on the descriptor. The kernel always reports it, even if not requested.
        public static let failed = Events(rawValue: 0x008)
        /// Shutdown of both directions. The kernel always reports it, even if not requested.
        public static let hungUp = Events(rawValue: 0x010)
        /// The peer will send no more bytes.
        public static let peerFinished = Events(rawValue: 0x2000)
    }

    public static let batch = Int(TW_EPOLL_BATCH)

    private let owned: OwnedDescriptor
    public var descriptor: Int32 { owned.number }
    private let ready: UnsafeMutablePointer<tw_readiness>

    public init() throws(SystemError) {
        owned = OwnedDescriptor(try systemCall("epoll", "") { epoll_create1(Int32(EPOLL_CLOEXEC)) })
        // SAFETY: freed in `deinit`, by the only owner.
        unsafe ready = .allocate(capacity: Epoll.batch)
        unsafe ready.initialize(repeating: tw_readiness(), count: Epoll.batch)
    }

    deinit {
        // SAFETY: this instance's own allocation.
        unsafe ready.deallocate()
    }

    public func add(_ watched: Int32, _ events: Events, key: UInt64) throws(SystemError) {
        _ = try systemCall("epoll add", "") {
            tw_epoll_control(descriptor, Int32(EPOLL_CTL_ADD), watched, events.rawValue, key)
        }
    }

    public func change(_ watched: Int32, _ events: Events, key: UInt64) throws(SystemError) {
        _ = try systemCall("epoll change", "") {
            tw_epoll_control(descriptor, Int32(EPOLL_CTL_MOD), watched, events.rawValue, key)
        }
    }

    /// Removes a descriptor that stays open. The kernel removes a descriptor itself when it is closed.
    public func remove(_ watched: Int32) {
        _ = tw_epoll_control(descriptor, Int32(EPOLL_CTL_DEL), watched, 0, 0)
    }

    /// Waits for events and returns their number. `event` returns each of them. A nil timeout means no time limit.
    public func wait(milliseconds: Int32?) -> Int {
        // SAFETY: `ready` has room for the batch that is asked for. A signal is the same as no event.
        Int(max(0, unsafe tw_epoll_wait(descriptor, ready, Int32(Epoll.batch), milliseconds ?? -1)))
    }

    /// Returns one of the events that the last `wait` reported.
    public func event(_ index: Int) -> (key: UInt64, events: Events) {
        precondition(index >= 0 && index < Epoll.batch, "only reported events can be looked at")
        // SAFETY: all of the batch is initialised and `index` lies in it.
        let event = unsafe ready[index]
        return (event.key, Events(rawValue: event.events))
    }
}
