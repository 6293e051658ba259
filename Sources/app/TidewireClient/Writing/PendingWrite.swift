import Foundation

/// A write that the server has not accepted yet.
public struct PendingWrite: Sendable, Hashable, Codable {
    /// Operation of a write.
    public enum Kind: String, Sendable, Codable {
        /// Inserts a row.
        case insert
        /// Updates columns of a row.
        case update
        /// Deletes a row.
        case delete
    }

    /// Idempotency key. The app sends it with the write, so that the server recognizes a repeated write.
    public let id: String
    /// Name of the table.
    public let table: String
    /// Key of the row, as text.
    public let row: String
    /// Operation of the write.
    public var kind: Kind
    /// Columns to write, with their values.
    public var values: [String: JSONValue]
    /// Row that must exist on the server before this one, as `table/key`: for example the post of a comment. Nil if
    /// there is none.
    public let parent: String?
    /// True if this insert replaces an earlier insert of the row that still waits: for example a newer position on a
    /// map.
    public let isReplaceable: Bool
    /// Time at which the app made the write, in seconds since 1970.
    let madeAt: Double
    /// Number of attempts that failed.
    public internal(set) var failures = 0
    /// True while the write is being sent.
    var isOut = false
    /// Earliest time of the next attempt, in seconds since 1970.
    var notBefore: Double = 0

    // Names in the storage. They must not change when a property is renamed.
    private enum CodingKeys: String, CodingKey {
        case id, table, row, kind, values, parent, madeAt, failures, isOut, notBefore
        case isReplaceable = "newestOnly"
    }

    /// Creates a write.
    ///
    /// - Parameters:
    ///   - id: idempotency key.
    ///   - table: name of the table.
    ///   - row: key of the row, as text.
    ///   - kind: operation of the write.
    ///   - values: columns to write, with their values.
    ///   - parent: row that must exist on the server before this one, as `table/key`; nil if there is none.
    ///   - isReplaceable: true if this insert replaces an earlier insert of the row that still waits.
    ///   - date: time at which the app made the write.
    public init(
        id: String = UUID().uuidString, table: String, row: String, kind: Kind, values: [String: JSONValue] = [:],
        parent: String? = nil, isReplaceable: Bool = false, date: Date
    ) {
        self.id = id
        self.table = table
        self.row = row
        self.kind = kind
        self.values = values
        self.parent = parent
        self.isReplaceable = isReplaceable
        madeAt = date.timeIntervalSince1970
    }

    /// Time at which the app made the write.
    public var date: Date { Date(timeIntervalSince1970: madeAt) }
    /// Name of the row, `table/key`, which other writes use as their ``parent``.
    public var name: String { table + "/" + row }

    /// Copies the number of failures and the time of the next attempt from the write that this one replaces, so that it
    /// is not sent earlier than that one would be.
    mutating func waits(as former: PendingWrite) {
        failures = former.failures
        notBefore = former.notBefore
    }
}

extension OfflineWrites {
    /// Limits of the waiting writes. `add` refuses a write that would exceed them.
    public struct Limits: Sendable, Hashable, Codable {
        /// Maximum number of waiting writes.
        public var maximumWrites = 1000
        /// Maximum size of all waiting writes together, in bytes.
        public var maximumBytes = 4 << 20
        var maximumSeconds: Double = 7 * 86_400
        /// Maximum age of a write. The queue gives up older writes.
        public var maximumAge: Duration {
            get { .seconds(maximumSeconds) }
            set { maximumSeconds = newValue / .seconds(1) }
        }

        // Names in the storage. They must not change when a property is renamed.
        private enum CodingKeys: String, CodingKey {
            case maximumWrites = "writes"
            case maximumBytes = "bytes"
            case maximumSeconds = "age"
        }

        /// Creates limits with the default values.
        public init() {}
    }

    /// Reason why the queue refuses a write.
    public enum Refusal: Error, Sendable, Hashable {
        /// The queue already contains the maximum number of writes.
        case tooManyWrites
        /// The waiting writes would together be larger than allowed.
        case tooLarge
    }

    /// Reason why the queue gave up a write. The app must undo what it showed of the write.
    public enum Loss: Sendable, Hashable {
        /// The app's API refused the write; the text is its reason.
        case refused(String)
        /// The write waited longer than the maximum age.
        case tooOld
        /// A write of the row that this one needs was lost.
        case parentLost
    }
}
