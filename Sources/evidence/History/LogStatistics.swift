import Bytes
import Change
import EventLog

/// Counts over a window of the log, without any values of rows.
public struct LogStatistics: Sendable {
    /// Property by which changes are grouped.
    public enum Grouping: String, CaseIterable, Sendable {
        case table, operation, origin, actor, minute, hour, day

        public var isOfTime: Bool { span != nil }

        /// Length of a group in microseconds; nil if groups are not spans of time.
        var span: Int64? {
            switch self {
            case .minute: 60_000_000
            case .hour: 3_600_000_000
            case .day: 86_400_000_000
            case .table, .operation, .origin, .actor: nil
            }
        }
    }

    public enum Group: Hashable, Sendable {
        case table(TableName)
        case operation(Operation)
        /// Origin of the changes; empty for changes made in this database.
        case origin(String)
        /// Actor that the application named; empty if it named none.
        case actor(String)
        /// Beginning of the span, in Unix microseconds.
        case time(Int64)
        /// Messages outside of transactions, before the first entry with a known time.
        case unknownTime
        /// Messages, which belong to no table.
        case messages
    }

    /// Returns the first `top` groups. Returns all groups of time unless `top` is 0, so that the series has no holes.
    public func groups(top: Int) -> ArraySlice<(group: Group, count: Count)> {
        grouping.isOfTime && top > 0 ? groups[...] : groups.prefix(top)
    }

    public struct Count: Sendable, Equatable {
        /// Number of changes of each operation, by `Operation.place`.
        fileprivate var operations = Array(repeating: UInt64(0), count: Operation.allCases.count)
        public internal(set) var changes: UInt64 = 0
        /// Number of transactions with at least one of the changes.
        public internal(set) var transactions: UInt64 = 0
        /// Size of the row images, as stored in the log.
        public internal(set) var bytes: UInt64 = 0

        fileprivate var lastTransaction: UInt64 = 0

        public subscript(operation: Operation) -> UInt64 { operations[operation.place] }
    }

    public struct Transaction: Sendable, Equatable {
        public internal(set) var info: TransactionInfo
        public internal(set) var firstOffset: UInt64
        public internal(set) var changes: UInt64 = 0
        public internal(set) var bytes: UInt64 = 0
    }

    public struct LargeChange: Sendable, Equatable {
        public let offset: UInt64
        public let transaction: TransactionInfo
        public let operation: Operation
        /// Table of the change; nil for a message.
        public let table: TableName?
        public let bytes: UInt64
    }

    public let grouping: Grouping
    public internal(set) var total = Count()
    /// Gaps in the window. History between them is unbroken.
    public internal(set) var gaps: [RecordedGap] = []
    /// Earliest and latest known commit time of the changes.
    public internal(set) var times: ClosedRange<Int64>?
    public internal(set) var offsets: ClosedRange<UInt64>?
    private var counts: [Count] = []
    private var places: [Group: Int] = [:]
    private var largestOnes: Largest<Transaction>
    private var largestChanges: Largest<LargeChange>

    // State of the transaction that is being counted.
    private var current: Transaction?
    private var currentNumber: UInt64 = 0
    private var placeOfTransaction: Int?
    /// Actor of the changes that are counted next; empty if the application named none.
    var actor = ""

    /// Creates empty statistics.
    ///
    /// - Parameter top: number of largest transactions, and of largest rows, to keep.
    public init(by grouping: Grouping, top: Int) {
        self.grouping = grouping
        largestOnes = Largest(top)
        largestChanges = Largest(top)
    }

    /// Groups of time in the order of time; other groups by the number of changes, largest first.
    public var groups: [(group: Group, count: Count)] {
        let all = places.map { (group: $0.key, count: counts[$0.value]) }
        return all.sorted { one, other in
            if grouping.isOfTime { return one.group.begin < other.group.begin }
            if one.count.changes != other.count.changes { return one.count.changes > other.count.changes }
            return String(describing: one.group) < String(describing: other.group)
        }
    }

    /// Largest transactions by bytes, largest first.
    public var largestTransactions: [Transaction] { largestOnes.sorted }
    public var largestRows: [LargeChange] { largestChanges.sorted }

    // MARK: Counting

    /// Begins a transaction. The changes added next belong to it.
    mutating func begin(_ info: TransactionInfo, time: Int64, offset: UInt64) {
        if let current, current.info.commitLSN == info.commitLSN, current.info.xid == info.xid { return }
        finish()
        current = Transaction(info: info, firstOffset: offset)
        currentNumber += 1
        total.transactions += 1
        if info.commitTime != 0 {
            times = times.map { min($0.lowerBound, time)...max($0.upperBound, time) } ?? time...time
        }
        placeOfTransaction = groupOfTransaction(info, time).map { place(of: $0) }
    }

    private func groupOfTransaction(_ info: TransactionInfo, _ time: Int64) -> Group? {
        if grouping == .origin { return .origin(info.origin) }
        guard let span = grouping.span else { return nil }
        if time == .min { return .unknownTime }
        // Rounds down before 1970 too, so that the span contains the time.
        let (whole, rest) = time.quotientAndRemainder(dividingBy: span)
        return .time((rest < 0 ? whole - 1 : whole) * span)
    }

    /// Ends the current transaction.
    mutating func finish() {
        if let current { largestOnes.take(current, size: current.bytes) }
        current = nil
    }

    /// Returns the index of the group for changes of this table and operation. Callers use it for many changes.
    mutating func place(of table: TableName?, _ operation: Operation) -> Int {
        switch grouping {
        case .table: place(of: table.map { .table($0) } ?? .messages)
        case .operation: place(of: .operation(operation))
        case .actor: place(of: .actor(actor))
        case .origin, .minute, .hour, .day: placeOfTransaction ?? place(of: .origin(""))
        }
    }

    private mutating func place(of group: Group) -> Int {
        if let known = places[group] { return known }
        counts.append(Count())
        places[group] = counts.count - 1
        return counts.count - 1
    }

    mutating func add(_ operation: Operation, bytes: UInt64, at offset: UInt64, in place: Int, _ table: TableName?) {
        counts[place].add(operation, bytes, currentNumber)
        total.add(operation, bytes, 0)
        offsets = (offsets?.lowerBound ?? offset)...offset
        current?.changes += 1
        current?.bytes += bytes
        guard largestChanges.wants(bytes), let current else { return }
        largestChanges.take(
            LargeChange(
                offset: offset, transaction: current.info, operation: operation, table: table, bytes: bytes),
            size: bytes)
    }
}

extension LogStatistics.Group {
    fileprivate var begin: Int64 { if case .time(let time) = self { time } else { .min } }
}

extension LogStatistics.Count {
    /// Counts a change. `transaction` is the number of its transaction; 0 means none.
    fileprivate mutating func add(_ operation: Operation, _ size: UInt64, _ transaction: UInt64) {
        operations[operation.place] += 1
        changes += 1
        bytes += size
        if transaction != lastTransaction {
            lastTransaction = transaction
            transactions += 1
        }
    }
}

extension Operation {
    /// Index of the operation in `Operation.allCases`.
    fileprivate var place: Int {
        switch self {
        case .insert: 0
        case .update: 1
        case .delete: 2
        case .truncate: 3
        case .message: 4
        }
    }
}

/// Collector of the few largest of many elements.
private struct Largest<Element: Sendable>: Sendable {
    private let room: Int
    /// Largest elements first; equal ones in the order of arrival.
    private var kept: [(size: UInt64, element: Element)] = []

    init(_ room: Int) { self.room = max(0, room) }

    var sorted: [Element] { kept.map(\.element) }

    func wants(_ size: UInt64) -> Bool { kept.count < room || room > 0 && size > kept[kept.count - 1].size }

    mutating func take(_ element: Element, size: UInt64) {
        guard wants(size) else { return }
        if kept.count == room { kept.removeLast() }
        let place = kept.firstIndex { $0.size < size } ?? kept.endIndex
        kept.insert((size, element), at: place)
    }
}

extension HistoryReader {
    /// Counts the changes that the query wants, up to the end of the window or the log. `progress` gets each offset
    /// reached.
    public mutating func count(into statistics: inout LogStatistics, progress: (UInt64) -> Void) throws {
        var counting = statistics
        while try visitEntry({ reader, entry in
            switch entry.kind {
            case .relation: try reader.learn()
            case .gap: if let gap = try reader.gap(entry) { counting.gaps.append(gap) }
            case .transaction:
                try reader.count(entry, into: &counting)
                progress(entry.offset)
            default: break
            }
        }) {}
        counting.finish()
        statistics = counting
    }

    private mutating func count(_ entry: EventLogEntry, into statistics: inout LogStatistics) throws {
        let time = time(of: entry)
        let isConditional = !query.conditions.isEmpty
        var part = try TransactionPart(reader.payload)
        let info = part.info
        var sight = Sight()
        var offset = entry.offset
        var actors = actors
        try actors.begin(part, at: entry, in: log)
        statistics.actor = actors.actor?.masked(by: log.masking).name ?? ""
        defer { self.actors = actors }
        while let change = try part.next() {
            defer { offset += 1 }
            if actors.take(change) {
                statistics.actor = actors.actor?.masked(by: log.masking).name ?? ""
                sight = Sight()
            }
            guard query.wants(change.operation), window.contains(offset: offset, time: time) else { continue }
            if sight.relation != change.relation || sight.operation != change.operation || !sight.isKnown {
                sight = try look(at: change.relation, change.operation)
            }
            guard sight.isWanted else { continue }
            if isConditional, !(try fulfils(change, info)) { continue }
            if !sight.hasPlace {
                statistics.begin(info, time: time, offset: offset)
                sight.place = statistics.place(of: sight.table, change.operation)
                sight.hasPlace = true
            }
            statistics.add(
                change.operation, bytes: UInt64(change.images.byteCount), at: offset, in: sight.place, sight.table)
        }
    }

    /// Facts about the last change, which also hold for changes with the same relation and operation in the same part
    /// of a transaction.
    private struct Sight {
        var isKnown = false
        var relation: UInt64 = 0
        var operation = Operation.message
        var isWanted = false
        var table: TableName?
        var hasPlace = false
        var place = 0
    }

    private func look(at relation: UInt64, _ operation: Operation) throws(ByteError) -> Sight {
        var sight = Sight(isKnown: true, relation: relation, operation: operation)
        if operation == .message {
            sight.isWanted = query.tables.isEmpty && query.conditions.isEmpty
            return sight
        }
        guard let known = relations[relation] else {
            throw ByteError(expected: "the schema of each change before it", offset: 0)
        }
        sight.isWanted = known.isWanted
        sight.table = known.known.table
        return sight
    }

    private func fulfils(_ change: borrowing Change, _ info: TransactionInfo) throws -> Bool {
        let place = RecordedChange(
            offset: 0, epoch: 0, transaction: info, index: 0, operation: change.operation, oldImage: change.oldImage,
            options: change.options, relation: nil, old: [], new: [])
        var rows: Set<UInt64>?
        return try keep(change, place, &rows) != nil
    }
}
