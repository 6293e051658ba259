import Foundation

/// What a row says of itself, for deciding between two of it.
public struct RowVersion: Sendable, Hashable {
    /// When it was changed, by the clock of whoever changed it.
    public var updatedAt: Date?
    /// Deleted softly.
    public var isDeleted: Bool
    /// Where the server's log has it; nil for what has not been there.
    public var position: Position?

    public init(updatedAt: Date?, isDeleted: Bool = false, position: Position? = nil) {
        self.updatedAt = updatedAt
        self.isDeleted = isDeleted
        self.position = position
    }

    public init(updatedAt: Date?, deletedAt: Date?, position: Position? = nil) {
        self.init(updatedAt: updatedAt, isDeleted: deletedAt != nil, position: position)
    }
}

public enum Resolution: Sendable, Hashable {
    /// Nothing is there: the remote row is inserted.
    case insert
    case takeRemote
    /// The local row is newer; it will be sent.
    case keepLocal
    case deleteSoftly
    /// It was deleted here, and somebody changed it later.
    case undelete
    case delete
}

/// Decides between a row here and a row from the server. An app with other rules brings its own.
public protocol ConflictPolicy: Sendable {
    /// `hasUnsentWrite`: the local row has changes that the server has not been told.
    func resolve(local: RowVersion?, remote: RowVersion, hasUnsentWrite: Bool) -> Resolution
    /// The row is gone on the server.
    func resolveDeletion(local: RowVersion?, at position: Position?, hasUnsentWrite: Bool) -> Resolution
}

/// The last write wins:
///
/// | | |
/// | --- | --- |
/// | same `updated_at` | remote |
/// | local without a date | remote |
/// | remote without a date | local |
/// | remote deleted softly | deleted softly |
/// | local deleted, remote changed since | undeleted |
/// | both deleted | stays deleted |
/// | gone on the server | gone, unless there is an unsent write |
/// | the log had it before what is here | nothing changes |
///
/// Dates count to the microsecond, as PostgreSQL has them.
public struct LastWriteWins: ConflictPolicy {
    public enum Deletion: Sendable, Hashable {
        case wins
        /// A write that was not sent yet makes the row anew.
        case losesToUnsentWrite
    }

    public let deletion: Deletion

    public init(deletion: Deletion = .losesToUnsentWrite) { self.deletion = deletion }

    public func resolve(local: RowVersion?, remote: RowVersion, hasUnsentWrite: Bool) -> Resolution {
        guard let local else { return remote.isDeleted ? .deleteSoftly : .insert }
        if Self.isOlder(remote.position, than: local.position) { return .keepLocal }
        switch (local.isDeleted, remote.isDeleted) {
        case (_, true): return .deleteSoftly
        case (true, false): return Self.isRemoteLater(local, remote) ? .undelete : .keepLocal
        case (false, false): return Self.isRemoteLater(local, remote) ? .takeRemote : .keepLocal
        }
    }

    public func resolveDeletion(local: RowVersion?, at position: Position?, hasUnsentWrite: Bool) -> Resolution {
        if let local, Self.isOlder(position, than: local.position) { return .keepLocal }
        return hasUnsentWrite && deletion == .losesToUnsentWrite ? .keepLocal : .delete
    }

    /// Of another epoch, or none, nothing is known.
    private static func isOlder(_ position: Position?, than other: Position?) -> Bool {
        guard let position, let other, position.epoch == other.epoch else { return false }
        return position.offset < other.offset
    }

    private static func isRemoteLater(_ local: RowVersion, _ remote: RowVersion) -> Bool {
        guard let localDate = local.updatedAt else { return true }
        guard let remoteDate = remote.updatedAt else { return false }
        return microseconds(remoteDate) >= microseconds(localDate)
    }

    private static func microseconds(_ date: Date) -> Int64 {
        Int64((date.timeIntervalSince1970 * 1_000_000).rounded().clamped(to: -9.2e18...9.2e18))
    }
}

extension Double {
    fileprivate func clamped(to range: ClosedRange<Double>) -> Double {
        min(max(self, range.lowerBound), range.upperBound)
    }
}
