import Change
import Synchronization
import System

/// A publication that the stream carries besides the clients' own, and since when: the hub's, with the tables that make
/// members, or the one of database messages.
///
/// A publication can be listed only for what was written after it was made: for older WAL the server does not know it. So
/// it is listed once the stream has passed a position at which it was seen. Any thread may ask.
public final class StreamCoverage: Sendable {
    /// The hub's own, with the tables that make members.
    public static let memberships = "tidewire_internal"
    /// The one whose name other servers of this protocol use, with the table of messages.
    public static let messages = "supabase_realtime_messages_publication"

    private struct State {
        /// Which one of that name; zero where nobody asked.
        var number: UInt32 = 0
        /// It was seen at this position.
        var seenAt: LSN?
        /// The stream that runs lists it.
        var isListed = false
        /// It is listed, and has been from here on without a break.
        var since: LSN?
        /// The server did not take it: what was known before does not count.
        var isRefused = false
    }

    public let publication: String
    private let state = Mutex(State())
    /// Record of its tables, if they make members.
    public let record = MembershipRecord()

    public init(publication: String = StreamCoverage.memberships) { self.publication = publication }

    /// For whoever looks at a hub's log from outside: the hub's stream is taken to carry the publication from here on.
    public convenience init(publication: String = StreamCoverage.memberships, followedSince position: LSN) {
        self.init(publication: publication)
        _ = try? keep(isListed: true, at: position)
        _ = began(isListed: true, at: position)
    }

    /// Every change of the publication's tables behind this position is in the log; nil while it is not in the stream.
    public var followedSince: LSN? { state.withLock { $0.since } }

    /// Somebody saw the publication when the WAL ended here.
    public func saw(at position: LSN) {
        state.withLock { if $0.seenAt == nil { $0.seenAt = position } }
    }

    /// The same, where one knows which one it is: another of that name is not the one that was followed.
    public func saw(_ number: UInt32, at position: LSN) {
        state.withLock { state in
            if state.number != number {
                state = State(number: number, isListed: state.isListed, isRefused: state.isRefused)
            }
            if state.seenAt == nil { state.seenAt = position }
        }
    }

    /// It is not there. Where the stream lists it, the server says so itself.
    public func missed() {
        state.withLock { if $0.since == nil { $0.seenAt = nil } }
    }

    /// It is not there any more, or of no use: a server may go on without it and say nothing.
    func lost() {
        state.withLock { $0 = State(isListed: $0.isListed, isRefused: $0.isRefused) }
    }

    // MARK: Across restarts

    /// Reads the record that an earlier process wrote beside the log. The publication counts as followed since then, until the
    /// stream finds otherwise.
    public func open(in directory: any StorageDirectory, isNew: Bool) {
        record.open(in: directory, isNew: isNew)
        guard let kept = record.notes.publication else { return }
        state.withLock { $0 = State(number: kept.number, since: kept.since) }
    }

    /// True if a stream must still find out whether it can continue with the publication.
    var isKept: Bool { state.withLock { $0.since != nil && !$0.isListed } }

    /// Sets the present publication (nil: it does not exist). The one that the log has followed up to this position can be
    /// listed from there on.
    func resume(_ number: UInt32?, at position: LSN) {
        state.withLock { state in
            guard state.since != nil, !state.isListed else { return }
            if number == state.number {
                state.seenAt = min(state.seenAt ?? position, position)
            } else {
                state = State()
            }
        }
    }

    /// Records the state of the stream before it begins.
    func keep(isListed: Bool, at position: LSN) throws(SystemError) {
        let (number, since) = state.withLock { ($0.number, $0.since ?? position) }
        try record.change { notes in
            notes.publication = isListed ? MembershipNotes.Publication(number: number, since: since) : nil
        }
    }

    /// Drops earlier knowledge after a gap in history.
    func forget() throws(SystemError) {
        try record.change { $0 = .unknown }
        state.withLock { $0 = State(isListed: $0.isListed) }
    }

    // MARK: For the stream

    /// The one that the log has followed up to this position can be listed from there on. What was written before the hub
    /// was started is then not lost.
    func resume(_ followed: FollowedPublication, at position: LSN) {
        state.withLock { state in
            guard state.number == followed.number, state.seenAt != nil, !state.isRefused else { return }
            state.seenAt = min(state.seenAt ?? position, position)
        }
    }

    /// Number of the publication; zero until it has been asked for.
    public var number: UInt32 { state.withLock { $0.number } }

    func isListable(at position: LSN) -> Bool { state.withLock { $0.seenAt.map { position >= $0 } ?? false } }

    /// The stream runs without it and could have it; or runs with one that is gone.
    func isWaiting(at position: LSN) -> Bool {
        state.withLock { state in
            guard state.since == nil else { return false }
            return state.isListed || state.seenAt.map { position >= $0 } ?? false
        }
    }

    /// A stream begins. True when readers of the log have to know.
    func began(isListed: Bool, at position: LSN) -> Bool {
        state.withLock { state in
            let was = state.since
            state.since = isListed ? state.since ?? position : nil
            state.isListed = isListed
            if isListed { state.isRefused = false }
            return state.since != was
        }
    }

    /// The server did not take it: it has to be seen again.
    func failed() { state.withLock { $0 = State(isRefused: true) } }
}
