import Catalog
import Change
import History

/// Deliveries of a window that the given policies would not have made, or that only they would have made.
public struct LeakReport: Sendable {
    public enum Kind: String, Sendable, CaseIterable {
        /// The hub delivered the change; the given policies would not have shown it.
        case leaked
        /// The hub delivered the change with columns that the given policies would not let the client read.
        case columns
        /// The hub did not deliver the change; the given policies would have shown it. A change that the client
        /// received after a return counts as delivered.
        case missed
        /// Unknown: the log does not show whether the hub delivered the change, or the verdict of the given policies
        /// cannot be computed.
        case unknown
    }

    /// Counts of one user's deliveries in one table.
    public struct Line: Sendable {
        /// User's claim `sub`, masked by the rules with which the log was opened; empty if the user has none.
        public var user: String
        public var role: String
        public var table: TableName
        /// Number of deliveries, including the leaked ones.
        public var delivered = 0
        public internal(set) var counts: [Kind: Int] = [:]
        public internal(set) var causes: Set<UnknownCause> = []
        /// Names of the columns that the hub delivered and that the given policies would not let the user read.
        public internal(set) var columns: Set<String> = []
        /// Leaked and missed deliveries, grouped by reason. A missed delivery is called a gain in them.
        public internal(set) var shifts: [WhatIfReport.Shift] = []

        public func count(_ kind: Kind) -> Int { counts[kind] ?? 0 }

        init(user: String, role: String, table: TableName) {
            (self.user, self.role, self.table) = (user, role, table)
        }
    }

    /// Delivery to one channel that differs from the result of the given policies.
    public struct Item: Sendable {
        public var kind: Kind
        public var offset: UInt64
        /// Index in `lines` of the user's and the table's line.
        public var line: Int
        public var attendance: Attendance
        /// Unix time in microseconds of the recorded delivery; nil if the delivery is derived.
        public var sentAt: Int64?
        public var cause: UnknownCause?
        public var columns: [String] = []
    }

    /// Differences between the given policies and the catalog that was valid in one part of the window.
    public struct Part: Sendable {
        public var offsets: Range<UInt64>
        /// Differences from the given policies; nil if the log does not have the catalog of that time.
        public var differences: CatalogDifferences?
    }

    public let offsets: Range<UInt64>
    public internal(set) var parts: [Part] = []
    public internal(set) var lines: [Line] = []
    /// Deliveries that differ, up to the requested number. Further ones are only in the counts.
    public internal(set) var items: [Item] = []
    /// Number of channels that were examined.
    public internal(set) var channels = 0
    /// Number of rows that PostgreSQL evaluated with its present data.
    public internal(set) var asked = 0
    /// True if present memberships replaced past ones, because the caller allowed it.
    public internal(set) var membershipsAreOfNow = false
    /// Names of the columns that policies or filters read, and whose values a bundle does not have.
    public internal(set) var lost: Set<String> = []
    /// Number of channels and requests that the log does not record, because the hub had no room for their notes.
    public internal(set) var strangers: UInt64 = 0
    /// Offset of the log's first note about clients; nil if it has none.
    public internal(set) var ledgerFrom: UInt64?
    /// Number of deliveries for which the log has its own record.
    public internal(set) var recorded = 0

    init(_ offsets: Range<UInt64>) { self.offsets = offsets }

    /// Returns the number of deliveries of this kind, of all users and tables.
    public func count(_ kind: Kind) -> Int { lines.reduce(0) { $0 + $1.count(kind) } }
    /// Number of deliveries that the hub made, to all users and of all tables.
    public var delivered: Int { lines.reduce(0) { $0 + $1.delivered } }
    /// Causes of the unknown deliveries, of all users and tables.
    public var causes: Set<UnknownCause> { lines.reduce(into: []) { $0.formUnion($1.causes) } }
}
