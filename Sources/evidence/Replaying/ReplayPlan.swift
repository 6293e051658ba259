import Change
import EventLog
import History

/// What is to be replayed of a log.
public struct ReplayRequest: Sendable {
    public var query: HistoryQuery
    /// Tables that are called otherwise where they are written to.
    public var names: [TableName: TableName] = [:]
    public var tag = ""

    public init(_ query: HistoryQuery) { self.query = query }

    func target(of table: TableName) -> TableName { names[table] ?? table }

    /// Messages from the database are broadcast again where they are written: that has to be asked for.
    func leavesOut(_ relation: Relation) -> Bool { MessageTable.holds(relation) && query.tables.isEmpty }
}

/// A window of the log in, read once; what replaying it comes to out.
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
        /// All schemas that it had meanwhile, and which of their columns are masked.
        public var relations: [(relation: RecordedRelation, masked: Set<Int>)] = []
        /// Columns in whose values something was masked.
        public var maskedColumns: [String] = []
    }

    /// In the order in which they come.
    public private(set) var tables: [Table] = []
    public private(set) var transactions: UInt64 = 0
    public private(set) var messages: UInt64 = 0
    public private(set) var messageRows: UInt64 = 0
    /// Changes that were forgotten: there is nothing left to be replayed.
    public private(set) var forgotten: UInt64 = 0
    public private(set) var gaps: [RecordedGap] = []
    /// Of the first and the last change.
    public private(set) var offsets: ClosedRange<UInt64>?
    /// The least and the greatest.
    public private(set) var times: ClosedRange<Int64>?
    /// Where the log ended, and the replay will.
    public let query: HistoryQuery
    private var places: [TableName: Int] = [:]

    /// - Parameter note: is told now and then how far it is; says false when nobody wants it any more.
    public init(
        _ request: ReplayRequest, of log: HistoryLog, _ note: (UInt64) -> Bool = { _ in true }
    ) throws {
        var query = request.query
        // What is logged while it is replayed is not for this replay.
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
    /// Of a large transaction each part has a head of its own.
    func isSame(as other: TransactionInfo) -> Bool { commitLSN == other.commitLSN && xid == other.xid }
}
