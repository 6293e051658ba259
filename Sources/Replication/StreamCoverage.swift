import Change
import Synchronization

/// Which publications the stream carries besides the clients' own: the hub's, with the tables that make members.
///
/// A publication can be listed only for what was written after it was made: for older WAL the server does not know it. So
/// it is listed once the stream has passed a position at which it was seen. Any thread may ask.
public final class StreamCoverage: Sendable {
    private struct State {
        /// It was seen at this position.
        var seenAt: LSN?
        /// It is listed, and has been from here on without a break.
        var since: LSN?
    }

    /// The hub's own publication.
    public let publication: String
    private let state = Mutex(State())

    public init(publication: String = "tidewire_internal") { self.publication = publication }

    /// For whoever looks at a hub's log from outside: the hub's stream is taken to carry the publication from here on.
    public convenience init(publication: String = "tidewire_internal", followedSince position: LSN) {
        self.init(publication: publication)
        _ = began(isListed: true, at: position)
    }

    /// Every change of the publication's tables behind this position is in the log; nil while it is not in the stream.
    public var followedSince: LSN? { state.withLock { $0.since } }

    /// Somebody saw the publication when the WAL ended here.
    public func saw(at position: LSN) {
        state.withLock { if $0.seenAt == nil { $0.seenAt = position } }
    }

    /// It is not there (any more).
    public func missed() {
        state.withLock { if $0.since == nil { $0.seenAt = nil } }
    }

    // MARK: For the stream

    func isListable(at position: LSN) -> Bool { state.withLock { $0.seenAt.map { position >= $0 } ?? false } }

    /// The stream runs without it and could have it.
    func isWaiting(at position: LSN) -> Bool {
        state.withLock { $0.since == nil && $0.seenAt.map { position >= $0 } ?? false }
    }

    /// A stream begins. True when readers of the log have to know.
    func began(isListed: Bool, at position: LSN) -> Bool {
        state.withLock { state in
            let was = state.since
            state.since = isListed ? state.since ?? position : nil
            return state.since != was
        }
    }

    /// The server did not take it: it has to be seen again.
    func failed() { state.withLock { $0 = State() } }
}
