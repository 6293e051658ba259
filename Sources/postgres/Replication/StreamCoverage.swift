import Change
import Synchronization
import System

/// Publication in the stream in addition to the clients' publication, and the position since which the stream includes
/// it. It is either the hub's publication of tables that decide memberships, or the publication of database messages.
///
/// PostgreSQL knows a publication only in WAL written after its creation. So the stream includes ("lists") a
/// publication only after it has passed a position at which the publication existed. Any thread may use this object.
public final class StreamCoverage: Sendable {
    /// Name of the hub's own publication, which has the tables that decide memberships.
    public static let memberships = "tidewire_internal"
    /// Name of the publication of the messages table. Other servers of this protocol use the same name.
    public static let messages = "supabase_realtime_messages_publication"

    private struct State {
        /// OID of the publication with this name; zero until the hub has asked for it.
        var number: UInt32 = 0
        /// End of the WAL when the hub first saw the publication; nil if it has not seen it.
        var seenAt: LSN?
        /// True if the running stream lists the publication.
        var isListed = false
        /// Position since which the stream has listed the publication without a break; nil while it does not.
        var since: LSN?
        /// True if PostgreSQL refused the publication. What was known about it before no longer counts.
        var isRefused = false
    }

    public let publication: String
    private let state = Mutex(State())
    /// Record of the publication's tables. Only used if they decide memberships.
    public let record = MembershipRecord()

    public init(publication: String = StreamCoverage.memberships) { self.publication = publication }

    /// Creates the coverage for a program that reads a hub's log. It assumes that the hub's stream has included the
    /// publication since this position.
    public convenience init(publication: String = StreamCoverage.memberships, followedSince position: LSN) {
        self.init(publication: publication)
        _ = try? keep(isListed: true, at: position)
        _ = began(isListed: true, at: position)
    }

    /// Position after which the log has every change of the publication's tables; nil while the stream does not include
    /// it.
    public var followedSince: LSN? { state.withLock { $0.since } }

    /// Records that the hub saw the publication when the WAL ended at this position.
    public func saw(at position: LSN) {
        state.withLock { if $0.seenAt == nil { $0.seenAt = position } }
    }

    /// Records that the hub saw the publication with this OID. If the name has another OID than before, the publication
    /// is not the one that the log has followed.
    public func saw(_ number: UInt32, at position: LSN) {
        state.withLock { state in
            if state.number != number {
                state = State(number: number, isListed: state.isListed, isRefused: state.isRefused)
            }
            if state.seenAt == nil { state.seenAt = position }
        }
    }

    /// Records that the publication does not exist. If the stream lists it, PostgreSQL itself reports an error.
    public func missed() {
        state.withLock { if $0.since == nil { $0.seenAt = nil } }
    }

    /// Records that the publication was dropped or is unusable. PostgreSQL may continue without it and report nothing.
    func lost() {
        state.withLock { $0 = State(isListed: $0.isListed, isRefused: $0.isRefused) }
    }

    // MARK: Across restarts

    /// Reads the record that an earlier process wrote beside the log. The publication counts as followed since the
    /// recorded position, until the stream shows otherwise.
    public func open(in directory: any StorageDirectory, isNew: Bool) {
        record.open(in: directory, isNew: isNew)
        guard let kept = record.notes.publication else { return }
        state.withLock { $0 = State(number: kept.number, since: kept.since) }
    }

    /// True if an earlier process followed the publication, and the next stream must find out whether it can continue
    /// with it.
    var isKept: Bool { state.withLock { $0.since != nil && !$0.isListed } }

    /// Sets the OID of the current publication; nil if it does not exist. If it is the one that the log has followed up
    /// to this position, a stream can list it from there on.
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

    /// Records on the disk, before a stream begins, whether it lists the publication.
    func keep(isListed: Bool, at position: LSN) throws(SystemError) {
        let (number, since) = state.withLock { ($0.number, $0.since ?? position) }
        try record.change { notes in
            notes.publication = isListed ? MembershipNotes.Publication(number: number, since: since) : nil
        }
    }

    /// Forgets everything about the publication after a gap in the history.
    public func forget() throws(SystemError) {
        try record.change { $0 = .unknown }
        state.withLock { $0 = State(isListed: $0.isListed) }
    }

    // MARK: In a cluster

    /// Publication and position since which the running stream has listed it; nil while it does not.
    public var followed: FollowedMemberships? {
        state.withLock { state in state.since.map { FollowedMemberships(number: state.number, since: $0) } }
    }

    /// Takes over what another hub, which feeds the log, knows: since when the stream has listed the publication. Nil
    /// means that it does not.
    public func adopt(_ followed: FollowedMemberships?) throws(SystemError) {
        try record.change { notes in
            notes.publication = followed.map { MembershipNotes.Publication(number: $0.number, since: $0.since) }
        }
        state.withLock { state in
            let seenAt = state.number == followed?.number ? state.seenAt : nil
            state = State(
                number: followed?.number ?? state.number, seenAt: seenAt, isListed: followed != nil,
                since: followed?.since)
        }
    }

    /// Prepares for a stream of this hub's own, after another hub has fed the log. The stream finds out whether it can
    /// continue with the publication.
    public func takeOver() { state.withLock { $0.isListed = false } }

    // MARK: For the stream

    /// Allows a stream to list the publication from this position on, because the log has followed it up to there. So
    /// messages that were written before the start of the hub are not lost.
    func resume(_ followed: FollowedPublication, at position: LSN) {
        state.withLock { state in
            guard state.number == followed.number, state.seenAt != nil, !state.isRefused else { return }
            state.seenAt = min(state.seenAt ?? position, position)
        }
    }

    /// OID of the publication; zero until the hub has asked for it.
    public var number: UInt32 { state.withLock { $0.number } }

    func isListable(at position: LSN) -> Bool { state.withLock { $0.seenAt.map { position >= $0 } ?? false } }

    /// True if a new stream is needed: the running one does not list the publication but could, or lists one that was
    /// dropped.
    func isWaiting(at position: LSN) -> Bool {
        state.withLock { state in
            guard state.since == nil else { return false }
            return state.isListed || state.seenAt.map { position >= $0 } ?? false
        }
    }

    /// Records that a stream has begun. Returns true if `followedSince` changed, so that readers of the log must be
    /// informed.
    func began(isListed: Bool, at position: LSN) -> Bool {
        state.withLock { state in
            let was = state.since
            state.since = isListed ? state.since ?? position : nil
            state.isListed = isListed
            if isListed { state.isRefused = false }
            return state.since != was
        }
    }

    /// Records that PostgreSQL refused the publication. It must be seen again before a stream lists it.
    func failed() { state.withLock { $0 = State(isRefused: true) } }
}
