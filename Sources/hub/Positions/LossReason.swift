import Catalog
import Protocol

/// Reason why a channel may lack changes, as its client is told with `ChangesMissing`.
public enum LossReason: Hashable, Sendable {
    /// PostgreSQL gave no answer about a filter or policy.
    case undecided
    /// The client was connected before, and the hub does not know what it has received.
    ///
    /// - Parameter isRepeated: the client was told so on its socket before. The message is then no error, because a
    ///   client that joins again at each error would do so without end.
    case unknownPosition(isRepeated: Bool)
    /// The client reconnected before it had acknowledged a report about lost changes.
    case toldBeforeReturn
    case retention
    case otherHistory
    case unreadable
    /// Changes were read while the channel's bindings were not in place.
    case lateBindings
    case filtersRested
    case unpublished
    /// Entries were removed from the log on demand.
    case removed
    /// The channel's token was replaced by another person's.
    case tokenChanged
    /// The join was interrupted by a gap in history.
    case gap
    /// A message of the database was larger than the project allows, or beyond its rate.
    case messageDropped
    /// The row of a delete is in the log without a value, or only from before a gap, or from before its table left the
    /// publication.
    case deletedRowInDoubt

    private var cause: String {
        switch self {
        case .undecided: "A filter or policy could not be evaluated"
        case .unknownPosition: "The server does not know what this channel had received before it reconnected"
        case .toldBeforeReturn: "A message may not have arrived before this channel reconnected"
        case .retention: "The server's event log no longer has everything since this channel was connected"
        case .otherHistory: "The server's event log does not go back to where this channel was connected"
        case .unreadable: "The server's event log cannot be read from where this channel was connected"
        case .lateBindings: "This channel's bindings were not ready in time"
        case .filtersRested: "This channel's filters rested"
        case .unpublished: "A table was not published for a while"
        case .removed: "Rows were removed from the server's event log on demand"
        case .tokenChanged: "This channel's token became another user's"
        case .gap: "The server's event log has a gap"
        case .messageDropped: "A message of the database was too large, or came faster than the project allows"
        case .deletedRowInDoubt:
            "A row was deleted that the server's event log does not have whole or for certain, and its table does not keep whole old rows "
                + "(ALTER TABLE … REPLICA IDENTITY FULL)"
        }
    }

    public var message: ClientText { ClientText(.changesMissing, "\(cause): changes may be missing, fetch them again") }

    /// True if the loss may be reported again and again. Such a report is no error, because some clients join again at
    /// each error.
    public var mayLast: Bool {
        switch self {
        case .unknownPosition(let isRepeated): isRepeated
        case .messageDropped, .deletedRowInDoubt: true
        default: false
        }
    }

    /// Creates the reason to tell a client that cannot continue from its position.
    public init(_ refusal: LogStanding.Refusal) {
        switch refusal {
        case .olderThanRetention: self = .retention
        case .otherEpoch: self = .otherHistory
        case .unreadable: self = .unreadable
        case .unknown: self = .unknownPosition(isRepeated: false)
        }
    }
}
