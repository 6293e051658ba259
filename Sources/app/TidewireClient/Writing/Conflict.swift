import Foundation

/// Facts about one version of a row. A policy uses them to resolve a conflict between two versions.
public struct RowVersion: Sendable, Hashable {
    /// Time of the version's last change, by the clock of the device that made the change; nil if unknown.
    public var updatedAt: Date?
    /// True if the row is marked as deleted but still stored.
    public var isDeleted: Bool
    /// Position of the version in the server's log; nil if the server does not have the version yet.
    public var position: LogPosition?

    /// Creates facts about a version.
    ///
    /// - Parameters:
    ///   - updatedAt: time of the last change; nil if the row has none.
    ///   - isDeleted: true if the row is marked as deleted but still stored.
    ///   - position: position of the version in the server's log; nil if the server does not have the version yet.
    public init(updatedAt: Date?, isDeleted: Bool = false, position: LogPosition? = nil) {
        self.updatedAt = updatedAt
        self.isDeleted = isDeleted
        self.position = position
    }

    /// Creates facts about a version of a row that has a column for the time of its soft deletion.
    ///
    /// - Parameters:
    ///   - updatedAt: time of the last change; nil if the row has none.
    ///   - deletedAt: time at which the row was marked as deleted; nil if it was not.
    ///   - position: position of the version in the server's log; nil if the server does not have the version yet.
    public init(updatedAt: Date?, deletedAt: Date?, position: LogPosition? = nil) {
        self.init(updatedAt: updatedAt, isDeleted: deletedAt != nil, position: position)
    }
}

/// Result of a conflict between a local row and a row from the server.
public enum ConflictResolution: Sendable, Hashable {
    /// The app has no local row: insert the remote row.
    case insert
    /// The remote row is newer: store it.
    case takeRemote
    /// The local row is newer: keep it. The client will send it.
    case keepLocal
    /// The remote row is marked as deleted: store it.
    case deleteSoftly
    /// The local row is marked as deleted, and a later remote change restores it: store the remote row.
    case undelete
    /// The row no longer exists on the server: remove it.
    case delete
}

/// Rules that resolve conflicts between a local row and a row from the server. An app may provide its own.
public protocol ConflictPolicy: Sendable {
    /// Decides between a local row and a changed row from the server.
    ///
    /// - Parameters:
    ///   - local: app's version of the row; nil if the app has none.
    ///   - remote: server's version of the row.
    ///   - hasUnsentWrite: true if the local row has changes that the server has not received yet.
    func resolve(local: RowVersion?, remote: RowVersion, hasUnsentWrite: Bool) -> ConflictResolution
    /// Decides about a local row that was deleted on the server.
    ///
    /// - Parameters:
    ///   - local: app's version of the row; nil if the app has none.
    ///   - position: position of the deletion in the server's log; nil if the server has no positions.
    ///   - hasUnsentWrite: true if the local row has changes that the server has not received yet.
    func resolveDeletion(local: RowVersion?, at position: LogPosition?, hasUnsentWrite: Bool) -> ConflictResolution
}

/// Policy by which the last write wins:
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
/// | remote older in the server's log | nothing changes |
///
/// The policy compares dates to the microsecond, as PostgreSQL stores them.
public struct LastWriteWins: ConflictPolicy {
    /// Treatment of a row that was deleted on the server while this client has an unsent write of it.
    public enum Deletion: Sendable, Hashable {
        /// The row is removed, and the unsent write has no effect.
        case wins
        /// The row remains, and the unsent write creates it again on the server.
        case losesToUnsentWrite
    }

    /// Treatment of a row that was deleted on the server while this client has an unsent write of it.
    public let deletion: Deletion

    /// Creates the policy. By default a row with an unsent write remains, and the write creates it again.
    public init(deletion: Deletion = .losesToUnsentWrite) { self.deletion = deletion }

    /// Decides between a local row and a changed row from the server.
    public func resolve(local: RowVersion?, remote: RowVersion, hasUnsentWrite: Bool) -> ConflictResolution {
        guard let local else { return remote.isDeleted ? .deleteSoftly : .insert }
        if Self.isOlder(remote.position, than: local.position) { return .keepLocal }
        switch (local.isDeleted, remote.isDeleted) {
        case (_, true): return .deleteSoftly
        case (true, false): return Self.isRemoteLater(local, remote) ? .undelete : .keepLocal
        case (false, false): return Self.isRemoteLater(local, remote) ? .takeRemote : .keepLocal
        }
    }

    /// Decides about a local row that was deleted on the server.
    public func resolveDeletion(
        local: RowVersion?, at position: LogPosition?, hasUnsentWrite: Bool
    ) -> ConflictResolution {
        if let local, Self.isOlder(position, than: local.position) { return .keepLocal }
        return hasUnsentWrite && deletion == .losesToUnsentWrite ? .keepLocal : .delete
    }

    /// True if `position` is older than `other`. False if they cannot be compared, because they have different epochs
    /// or one is missing.
    private static func isOlder(_ position: LogPosition?, than other: LogPosition?) -> Bool {
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
