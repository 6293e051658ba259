import Catalog
import Protocol

/// Reason why a channel may lack changes. The hub sends it to the client in a `ChangesMissing` message.
public enum LossReason: Hashable, Sendable {
    /// PostgreSQL did not answer whether a filter or policy lets the client have a change.
    case undecided
    /// The client was connected before, and the hub does not know what it has received.
    ///
    /// - Parameter isRepeated: true if the hub has already told the client so on this socket. The message is then no
    ///   error, because some clients join again at each error and would never stop.
    case unknownPosition(isRepeated: Bool)
    /// The client reconnected before it had acknowledged a loss report.
    case toldBeforeReturn
    /// Retention deleted changes before the channel received them.
    case retention
    /// The client's position is in another epoch of the log.
    case otherHistory
    /// A part of the log cannot be read.
    case unreadable
    /// The hub read changes before the channel's bindings were in place.
    case lateBindings
    /// The channel's filters took too much work and were skipped for a while.
    case filtersRested
    /// A table was outside the publication for a while.
    case unpublished
    /// An operator had entries removed from the log.
    case removed
    /// Another person's token replaced the channel's token.
    case tokenChanged
    /// The client may see other rows than before, and the hub does not send these: too many, or unknown which.
    case otherRows
    /// A gap in the log interrupted the join.
    case gap
    /// A database message was larger than the project allows, or exceeded its rate.
    case messageDropped
    /// Past messages that the join asked for are too large together.
    case replayCut
    /// The log has a deleted row without some value, or only from before a gap or before its table left the
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
        case .otherRows:
            "A membership, a policy, a right or the token changed, so that this channel may see other rows than before"
        case .gap: "The server's event log has a gap"
        case .messageDropped: "A message of the database was too large, or came faster than the project allows"
        case .replayCut: "The past messages that this channel asked for are too large together to be sent all"
        case .deletedRowInDoubt:
            "A row was deleted that the server's event log does not have whole or for certain, and its table does not keep whole old rows "
                + "(ALTER TABLE … REPLICA IDENTITY FULL)"
        }
    }

    public var message: ClientText { ClientText(.changesMissing, "\(cause): changes may be missing, fetch them again") }

    /// True if the loss may be reported repeatedly. Such a report is no error, because some clients join again at each
    /// error.
    public var mayLast: Bool {
        switch self {
        case .unknownPosition(let isRepeated): isRepeated
        case .messageDropped, .deletedRowInDoubt, .otherRows, .replayCut: true
        default: false
        }
    }

    /// Creates the reason for a client that cannot continue from its position.
    public init(_ refusal: LogStanding.Refusal) {
        switch refusal {
        case .olderThanRetention: self = .retention
        case .otherEpoch: self = .otherHistory
        case .unreadable: self = .unreadable
        case .unknown: self = .unknownPosition(isRepeated: false)
        }
    }
}
