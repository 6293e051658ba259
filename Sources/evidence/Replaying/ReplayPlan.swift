import Change
import EventLog
import History

/// Selection of the changes in the log that a replay repeats.
public struct ReplayRequest: Sendable {
    public var query: HistoryQuery
    /// Names that tables have in the target, by their names in the log. Only tables whose names differ are in it.
    public var names: [TableName: TableName] = [:]
    public var tag = ""

    public init(_ query: HistoryQuery) { self.query = query }

    /// Returns the name that a table of the log has in the target.
    func target(of table: TableName) -> TableName { names[table] ?? table }

    /// True for `realtime.messages` if the replay skips its rows: the target would broadcast them again. The replay
    /// includes them only if the query names tables.
    func leavesOut(_ relation: Relation) -> Bool { MessageTable.holds(relation) && query.tables.isEmpty }
}

/// Summary of everything that a replay will do, made by reading its window of the log once.
public struct ReplayPlan: Sendable {
    public struct Counts: Sendable, Equatable {
        public var inserts: UInt64 = 0
        public var updates: UInt64 = 0
        public var deletes: UInt64 = 0
        public var truncates: UInt64 = 0

        public var all: UInt64 { inserts + updates + deletes + truncates }

        mutating func add(_ operation: Operation) {
            switch operation {
            case .insert: inserts += 1
            case .update: updates += 1
            case .delete: deletes += 1
            case .truncate: truncates += 1
            case .message: break
            }
        }
    }

    public struct Table: Sendable {
        public let source: TableName
        public let target: TableName
        public var counts = Counts()
        /// All schemas that the table has in the window of the log, each with the indexes of its masked columns.
        public var relations: [(relation: RecordedRelation, masked: Set<Int>)] = []
        /// Names of the columns whose values are masked.
        public var maskedColumns: [String] = []
    }

    /// Tables in the order in which they first occur in the window.
    public private(set) var tables: [Table] = []
    public private(set) var transactions: UInt64 = 0
    /// Number of messages in the window that belong to no table (`pg_logical_emit_message`). The replay skips them.
    public private(set) var messages: UInt64 = 0
    /// Number of changes of `realtime.messages` that the replay skips.
    public private(set) var messageRows: UInt64 = 0
    /// Number of changes whose values were removed by `tidewire log forget`, so that they cannot be replayed.
    public private(set) var forgotten: UInt64 = 0
    public private(set) var gaps: [RecordedGap] = []
    /// Offsets of the first and the last change that the replay repeats; nil if there is none.
    public private(set) var offsets: ClosedRange<UInt64>?
    /// Earliest and latest commit time of the changes, in microseconds since 1970; nil if there is no change.
    public private(set) var times: ClosedRange<Int64>?
    /// Query that selects the changes of the replay. It is that of the request; if that has no end, it ends where the
    /// log ended when the plan was made.
    public let query: HistoryQuery
    private var places: [TableName: Int] = [:]

    /// Reads the window and makes the plan.
    ///
    /// - Parameter note: called from time to time with the offset that was reached. If it returns false, the reading is
    ///   cancelled.
    public init(
        _ request: ReplayRequest, of log: HistoryLog, _ note: (UInt64) -> Bool = { _ in true }
    ) throws {
        var query = request.query
        // Changes that are logged during the replay must not become a part of it.
        if query.to == nil { query.to = .offset(try log.segments().last?.endOffset ?? 0) }
        self.query = query
        var reader = try HistoryReader(log, query)
        var last: TransactionInfo?
        var count: UInt64 = 0
        while let item = try reader.next() {
            count += 1
            if count % 1024 == 0, !note(reader.offset) { return }
            switch item {
            case .gap(let gap): gaps.append(gap)
            case .presence, .mark, .kept: break
            case .change(let change):
                guard let relation = change.relation else {
                    messages += 1
                    continue
                }
                guard !request.leavesOut(relation.relation) else {
                    messageRows += 1
                    continue
                }
                guard change.forgotten == nil else {
                    forgotten += 1
                    continue
                }
                if last?.isSame(as: change.transaction) != true { transactions += 1 }
                last = change.transaction
                add(change, relation, request)
            }
        }
    }

    private mutating func add(_ change: RecordedChange, _ relation: RecordedRelation, _ request: ReplayRequest) {
        offsets = (offsets?.lowerBound ?? change.offset)...change.offset
        let time = change.transaction.commitTime
        times = min(times?.lowerBound ?? time, time)...max(times?.upperBound ?? time, time)
        let place = places[relation.table] ?? tables.count
        if place == tables.count {
            tables.append(Table(source: relation.table, target: request.target(of: relation.table)))
            places[relation.table] = place
        }
        tables[place].counts.add(change.operation)
        guard !tables[place].relations.contains(where: { $0.relation.fingerprint == relation.fingerprint }) else {
            return
        }
        let masked = Set(relation.relation.columns.indices.filter { change.isMasked($0) })
        tables[place].relations.append((relation, masked))
        for column in masked.sorted() {
            let name = relation.relation.columns[column].name
            if !tables[place].maskedColumns.contains(name) { tables[place].maskedColumns.append(name) }
        }
    }

    public var changes: UInt64 { tables.reduce(0) { $0 + $1.counts.all } }
}

extension TransactionInfo {
    /// True if both describe the same transaction. A large transaction is logged in several parts, each with its own
    /// `TransactionInfo`.
    func isSame(as other: TransactionInfo) -> Bool { commitLSN == other.commitLSN && xid == other.xid }
}
