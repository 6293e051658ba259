import Change
import Synchronization
import System

/// Publication that the stream carries beside the clients' own, and the position since which it does. Either the hub's
/// publication of tables that decide memberships, or that of database messages.
///
/// PostgreSQL knows a publication only in WAL written after its creation. So the stream lists a publication only after
/// it has passed a position at which the publication was seen. Any thread may use this object.
public final class StreamCoverage: Sendable {
    /// Name of the hub's own publication, with the tables that decide memberships.
    public static let memberships = "tidewire_internal"
    /// Name of the publication of the messages table, which other servers of this protocol use too.
    public static let messages = "supabase_realtime_messages_publication"

    private struct State {
        /// Number of the publication with this name; zero until it was asked for.
        var number: UInt32 = 0
        /// Position of the WAL's end when the publication was first seen.
        var seenAt: LSN?
        /// True if the running stream lists the publication.
        var isListed = false
        /// Position since which the stream has listed it without a break; nil while it is not listed.
        var since: LSN?
        /// True if the server refused the publication: earlier knowledge does not count.
        var isRefused = false
    }

    public let publication: String
    private let state = Mutex(State())
    /// Record of the publication's tables, if they decide memberships.
    public let record = MembershipRecord()

    public init(publication: String = StreamCoverage.memberships) { self.publication = publication }

    /// Creates the coverage for a reader of a hub's log from outside. The hub's stream is assumed to carry the
    /// publication from this position on.
    public convenience init(publication: String = StreamCoverage.memberships, followedSince position: LSN) {
        self.init(publication: publication)
        _ = try? keep(isListed: true, at: position)
        _ = began(isListed: true, at: position)
    }

    /// Position behind which the log has every change of the publication's tables; nil while the stream does not carry
    /// it.
    public var followedSince: LSN? { state.withLock { $0.since } }

    /// Records that the publication was seen when the WAL ended at this position.
    public func saw(at position: LSN) {
        state.withLock { if $0.seenAt == nil { $0.seenAt = position } }
    }

    /// Records that the publication with this number was seen. Another number under the same name is not the followed
    /// publication.
    public func saw(_ number: UInt32, at position: LSN) {
        state.withLock { state in
            if state.number != number {
                state = State(number: number, isListed: state.isListed, isRefused: state.isRefused)
            }
            if state.seenAt == nil { state.seenAt = position }
        }
    }

    /// Records that the publication does not exist. If the stream lists it, the server itself reports an error.
    public func missed() {
        state.withLock { if $0.since == nil { $0.seenAt = nil } }
    }

    /// Records that the publication is gone or useless. The server may go on without it and report nothing.
    func lost() {
        state.withLock { $0 = State(isListed: $0.isListed, isRefused: $0.isRefused) }
    }

    // MARK: Across restarts

    /// Reads the record that an earlier process wrote beside the log. The publication counts as followed since then,
    /// until the stream proves otherwise.
    public func open(in directory: any StorageDirectory, isNew: Bool) {
        record.open(in: directory, isNew: isNew)
        guard let kept = record.notes.publication else { return }
        state.withLock { $0 = State(number: kept.number, since: kept.since) }
    }

    /// True if a stream must still find out whether it can continue with the publication.
    var isKept: Bool { state.withLock { $0.since != nil && !$0.isListed } }

    /// Sets the present publication (nil: it does not exist). The publication that the log has followed up to this
    /// position can be listed from there on.
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

    /// Allows the publication that the log has followed up to this position to be listed from there on. Then messages
    /// written before the start of the hub are not lost.
    func resume(_ followed: FollowedPublication, at position: LSN) {
        state.withLock { state in
            guard state.number == followed.number, state.seenAt != nil, !state.isRefused else { return }
            state.seenAt = min(state.seenAt ?? position, position)
        }
    }

    /// Number of the publication; zero until it has been asked for.
    public var number: UInt32 { state.withLock { $0.number } }

    func isListable(at position: LSN) -> Bool { state.withLock { $0.seenAt.map { position >= $0 } ?? false } }

    /// True if the stream runs without the publication and could have it, or runs with one that is gone.
    func isWaiting(at position: LSN) -> Bool {
        state.withLock { state in
            guard state.since == nil else { return false }
            return state.isListed || state.seenAt.map { position >= $0 } ?? false
        }
    }

    /// Records the start of a stream. Returns true if readers of the log must be told.
    func began(isListed: Bool, at position: LSN) -> Bool {
        state.withLock { state in
            let was = state.since
            state.since = isListed ? state.since ?? position : nil
            state.isListed = isListed
            if isListed { state.isRefused = false }
            return state.since != was
        }
    }

    /// Records that the server refused the publication, which must be seen again first.
    func failed() { state.withLock { $0 = State(isRefused: true) } }
}
