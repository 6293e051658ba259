import Catalog
import Change
import History

/// Answer to the question which deliveries of a window the given policies would not have made.
public struct LeakReport: Sendable {
    public enum Kind: String, Sendable, CaseIterable {
        /// The change was delivered, and would not have been.
        case leaked
        /// The change was delivered with columns that the client could not have read.
        case columns
        /// The change was not delivered, and would have been. A change that the client was sent after a return counts as
        /// delivered.
        case missed
        /// Unknown delivery: the change may have been delivered or not, or it may not be known if it would have been.
        case unknown
    }

    /// Counts of one user in one table.
    public struct Line: Sendable {
        /// Claim `sub`, masked as the log was opened; empty if the user has none.
        public var user: String
        public var role: String
        public var table: TableName
        /// Number of deliveries, including the leaked ones.
        public var delivered = 0
        public internal(set) var counts: [Kind: Int] = [:]
        public internal(set) var causes: Set<UnknownCause> = []
        /// Names of the columns that were delivered and could not have been read.
        public internal(set) var columns: Set<String> = []
        /// Leaked and missed deliveries, grouped by reason. A gain is a missed one.
        public internal(set) var shifts: [WhatIfReport.Shift] = []

        public func count(_ kind: Kind) -> Int { counts[kind] ?? 0 }

        init(user: String, role: String, table: TableName) {
            (self.user, self.role, self.table) = (user, role, table)
        }
    }

    /// One delivery that differs, to one channel.
    public struct Item: Sendable {
        public var kind: Kind
        public var offset: UInt64
        /// Index of the user's line.
        public var line: Int
        public var attendance: Attendance
        /// Time of the recorded delivery; nil if the delivery is derived.
        public var sentAt: Int64?
        public var cause: UnknownCause?
        public var columns: [String] = []
    }

    /// Differences between the catalog of a part of the window and the given policies.
    public struct Part: Sendable {
        public var offsets: Range<UInt64>
        /// Nil if the log does not have the catalog of that time.
        public var differences: CatalogDifferences?
    }

    public let offsets: Range<UInt64>
    public internal(set) var parts: [Part] = []
    public internal(set) var lines: [Line] = []
    /// Differing deliveries, as many as were asked for. `items` leaves out further ones; the counts include them.
    public internal(set) var items: [Item] = []
    /// Number of channels that were examined.
    public internal(set) var channels = 0
    /// Number of rows that PostgreSQL judged by what it knows now.
    public internal(set) var asked = 0
    /// True if memberships count as they are now, because the caller said so.
    public internal(set) var membershipsAreOfNow = false
    /// Columns that policies or filters read, but whose values a bundle does not have.
    public internal(set) var lost: Set<String> = []
    /// Number of channels and requests that the log lacks for lack of room.
    public internal(set) var strangers: UInt64 = 0
    /// Offset from which on the log has notes of clients; nil if it has none.
    public internal(set) var ledgerFrom: UInt64?
    /// Number of deliveries that are recorded one by one.
    public internal(set) var recorded = 0

    init(_ offsets: Range<UInt64>) { self.offsets = offsets }

    public func count(_ kind: Kind) -> Int { lines.reduce(0) { $0 + $1.count(kind) } }
    public var delivered: Int { lines.reduce(0) { $0 + $1.delivered } }
    public var causes: Set<UnknownCause> { lines.reduce(into: []) { $0.formUnion($1.causes) } }
}
