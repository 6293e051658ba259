import Bytes
import Change
import EventLog
import System

/// Reader of the changes that a query selects, and of the gaps between them, in the order of the log.
///
/// The reader holds one part of a transaction in memory at a time. `next` returns nil if there is nothing more for now.
/// If the window has no end, the caller may ask again later. Only one thread may use a reader.
public struct HistoryReader: ~Copyable {
    let log: HistoryLog
    public let query: HistoryQuery
    public let window: HistoryWindow
    var reader: EventLogReader
    var relations: [UInt64: PreparedRelation] = [:]
    /// Hashes of the rows in the query, and of the keys that changes have given to these rows.
    private var rows: Set<UInt64>?
    private var names: TableNames
    private var found: [HistoryItem] = []
    private var given = 0
    /// Time of the last entry that has one. It also serves as the time of messages outside of transactions, which have
    /// none.
    private var lastTime: Int64 = .min
    /// End LSN of the transaction that is being read in several parts. Only the last part contains it.
    private var openEnd: LSN?
    var actors = ActorTrace()
    /// True if the reader has passed the window's end. `next` then returns nil, even if the log grows.
    public private(set) var isFinished = false
    /// Called with each entry's offset, even if the query wants nothing in the entry. An error that it throws ends the
    /// reading.
    public var noting: ((UInt64) throws -> Void)?

    /// Opens a reader. `matching` overrides the keys that decide which segments the reader skips.
    public init(_ log: HistoryLog, _ query: HistoryQuery, window: HistoryWindow, matching keys: [UInt64]? = nil) throws
    {
        let names = try TableNames(log)
        // Presence belongs to no table.
        let tables = query.includesPresence ? [] : query.tables
        let keys = keys ?? tables.map { RowKey.table(schema: $0.schema, name: $0.name) }
        let reader = try EventLogReader(directory: log.directory, from: window.start, matchingAnyOf: keys)
        self.log = log
        self.query = query
        self.window = window
        self.rows = query.rows
        self.names = names
        self.reader = reader
    }

    public init(_ log: HistoryLog, _ query: HistoryQuery) throws {
        try self.init(log, query, window: log.window(from: query.from, to: query.to))
    }

    /// Offset of the next change that the reader has not looked at.
    public var offset: UInt64 { reader.position.offset }

    /// Adds a row to the query, from the next change on. From the next segment on, the reader also reads segments that
    /// have only this row.
    public mutating func alsoMatch(_ key: UInt64) {
        reader.alsoMatch(key)
        rows?.insert(key)
    }

    public mutating func next() throws -> HistoryItem? {
        guard let item = try nextUnmasked() else { return nil }
        return masked(item)
    }

    mutating func nextUnmasked() throws -> HistoryItem? {
        while given == found.count {
            found.removeAll(keepingCapacity: true)
            given = 0
            guard !isFinished, try readEntry() else { return nil }
        }
        given += 1
        return found[given - 1]
    }

    func masked(_ item: HistoryItem) -> HistoryItem {
        switch item {
        case .gap, .mark: return item
        case .presence(let presence): return .presence(presence.masked(by: log.masking))
        case .change(let change):
            guard let relation = change.relation else { return .change(change.maskingMessage(by: log.masking)) }
            var masked = change.masking(masks(of: relation))
            masked.actor = shown(change.actor)
            return .change(masked)
        case .kept(let row): return .kept(row.relation.map { row.masking(masks(of: $0)) } ?? row)
        }
    }

    /// Returns an actor in masked form.
    func shown(_ actor: TransactionActor?) -> TransactionActor? { actor?.masked(by: log.masking) }

    /// Returns a change without values to mask, with its actor in masked form.
    func withShownActor(_ change: RecordedChange) -> RecordedChange {
        var change = change
        change.actor = shown(change.actor)
        return change
    }

    func masks(of relation: RecordedRelation) -> MaskedRelation {
        relations[relation.fingerprint]?.masked ?? MaskedRelation(relation.relation, log.masking, alsoCalled: [])
    }

    /// Reads one more entry. Returns false if there is none for now, or none that the window can include.
    private mutating func readEntry() throws -> Bool {
        try visitEntry { reader, entry in
            switch entry.kind {
            case .relation: try reader.learn()
            case .gap: if let gap = try reader.gap(entry) { reader.found.append(.gap(gap)) }
            case .transaction: try reader.readChanges(entry)
            case .presence where reader.query.includesPresence: try reader.readPresence(entry)
            case .operatorMark where reader.query.includesMarks: try reader.readMarks(entry)
            case .keptRows where reader.query.includesKept: try reader.readKept(entry)
            default: break
            }
        }
    }

    /// Moves to one more entry and calls `body`. Returns false if there is none for now, or none that the window can
    /// include.
    mutating func visitEntry(
        _ body: (inout HistoryReader, EventLogEntry) throws -> Void
    ) throws -> Bool {
        guard try reader.next() else { return false }
        let entry = reader.entry
        if entry.offset >= window.endOffset || entry.segment > window.lastSegment {
            isFinished = true
            return false
        }
        if entry.time != 0 { lastTime = entry.time }
        try noting?(entry.offset)
        do {
            try body(&self, entry)
        } catch let error as ByteError {
            throw UnreadableEntry(offset: entry.offset, segment: entry.segment, reason: error.description)
        }
        return true
    }

    /// Returns the entry's time; for an entry without one, the time of an earlier entry.
    func time(of entry: EventLogEntry) -> Int64 { entry.time == 0 ? lastTime : entry.time }

    mutating func learn() throws {
        let fingerprint = RelationCodec.fingerprint(of: reader.payload)
        guard relations[fingerprint] == nil else { return }
        learn(try RecordedRelation(stored: reader.payload))
    }

    @discardableResult
    private mutating func learn(_ known: RecordedRelation) -> PreparedRelation {
        if let prepared = relations[known.fingerprint] { return prepared }
        names.note(known.relation)
        let prepared = PreparedRelation(known, for: query, log.masking, alsoCalled: names[known.relation])
        relations[known.fingerprint] = prepared
        return prepared
    }

    /// Returns the gap; nil if it is outside the window.
    func gap(_ entry: EventLogEntry) throws -> RecordedGap? {
        guard window.contains(offset: entry.offset, time: entry.time) else { return nil }
        let gap = try GapCodec.decode(reader.payload)
        return RecordedGap(offset: entry.offset, epoch: entry.epoch, time: entry.time, gap: gap)
    }

    private mutating func readPresence(_ entry: EventLogEntry) throws {
        found = try PresenceCodec.decode(reader.payload).filter {
            window.contains(offset: entry.offset, time: $0.time)
        }.map { .presence(RecordedPresence(offset: entry.offset, epoch: entry.epoch, mark: $0)) }
    }

    private mutating func readMarks(_ entry: EventLogEntry) throws {
        found = try OperatorMarkCodec.decode(reader.payload).filter {
            window.contains(offset: entry.offset, time: $0.time)
        }.map { .mark(RecordedMark(offset: entry.offset, epoch: entry.epoch, mark: $0)) }
    }

    /// Reads the rows that the query wants. Skips forgotten rows, because nothing is left of them to show.
    private mutating func readKept(_ entry: EventLogEntry) throws {
        for note in try KeptRowsCodec.decode(reader.payload)
        where window.contains(offset: entry.offset, time: note.time) {
            let relation = learn(try RecordedRelation(stored: note.schema.rawBytes))
            guard relation.isWanted else { continue }
            for row in note.rows where !row.isForgotten {
                let tuple = Tuple(row.image.rawBytes)
                if let rows, !relation.mayConcern(rows, tuple) { continue }
                let place = TransactionInfo(xid: 0, commitLSN: note.lsn, endLSN: note.lsn, commitTime: note.time)
                found.append(
                    .kept(
                        RecordedChange(
                            offset: entry.offset, epoch: entry.epoch, transaction: place, index: 0, operation: .insert,
                            oldImage: .none, options: 0, relation: relation.known, old: [],
                            new: try Self.values(tuple, of: relation.known))))
            }
        }
    }

    private mutating func readChanges(_ entry: EventLogEntry) throws {
        let end = try endLSN(entry)
        let time = time(of: entry)
        // Local copies, because a part borrows the reader's bytes.
        var taken: [HistoryItem] = []
        var rows = rows
        var part = try TransactionPart(reader.payload)
        var info = part.info
        info.endLSN = end
        var index: UInt64 = 0
        var actors = actors
        try actors.begin(part, at: entry, in: log)
        while let change = try part.next() {
            defer { index += 1 }
            actors.take(change)
            guard query.wants(change.operation), window.contains(offset: entry.offset + index, time: time) else {
                continue
            }
            let number = part.firstIndex + UInt32(index)
            let kept = try keep(
                change,
                RecordedChange(
                    offset: entry.offset + index, epoch: entry.epoch, transaction: info, index: number,
                    operation: change.operation, oldImage: change.oldImage, options: change.options, relation: nil,
                    old: [], new: []), &rows)
            if var kept {
                kept.actor = actors.actor
                taken.append(.change(kept))
            }
        }
        self.actors = actors
        found = taken
        self.rows = rows
    }

    /// Returns the change with its values if the query wants it. `empty` makes the change without values, and is
    /// evaluated only for a wanted change: most are not wanted.
    func keep(
        _ change: borrowing Change, _ empty: @autoclosure () -> RecordedChange, _ rows: inout Set<UInt64>?
    ) throws -> RecordedChange? {
        if change.operation == .message {
            guard query.tables.isEmpty, query.conditions.isEmpty else { return nil }
            var kept = empty()
            kept.prefix = change.messagePrefix.copied()
            kept.content = change.messageContent.copied()
            return kept
        }
        guard let relation = relations[change.relation] else {
            throw ByteError(expected: "the schema of each change before it", offset: 0)
        }
        guard relation.isWanted else { return nil }
        let forgotten = change.isForgotten ? ForgottenChange(change) : nil
        if let rows {
            let isWanted = forgotten.map { rows.contains(where: $0.fits) } ?? relation.mayConcern(rows, change)
            guard isWanted else { return nil }
        }
        var kept = empty()
        kept.forgotten = forgotten
        kept.relation = relation.known
        if let old = change.old { kept.old = try Self.values(old, of: relation.known) }
        if let new = change.new { kept.new = try Self.values(new, of: relation.known) }
        // A forgotten change may have fulfilled the condition, so it is shown as forgotten rather than left out.
        guard
            query.conditions.isEmpty || change.isForgotten || (change.operation != .truncate && relation.fulfils(kept))
        else { return nil }
        kept.compareImages()
        // A later change of the same transaction may concern the row under its new key.
        if rows != nil, kept.oldKey != nil, let hash = relation.known.rowKey(fromKey: kept.key.map(\.value)) {
            rows?.insert(hash)
        }
        return kept
    }

    static func values(_ tuple: borrowing Tuple, of relation: RecordedRelation) throws(ByteError) -> [RowValue] {
        var values: [RowValue] = []
        values.reserveCapacity(relation.relation.columns.count)
        var columns = tuple.columns()
        while let value = try columns.next() { values.append(RowValue(value)) }
        guard values.count == relation.relation.columns.count else {
            throw ByteError(expected: "a row as wide as its table", offset: 0)
        }
        return values
    }

    /// Returns the end of the transaction's commit record. Only the last part of a large transaction contains it. A
    /// second reader therefore looks ahead, once, at the first part.
    private mutating func endLSN(_ entry: EventLogEntry) throws -> LSN {
        let head = try TransactionHead(reader)
        guard entry.isContinued else {
            openEnd = nil
            return head.info.endLSN
        }
        if let openEnd, head.firstIndex > 0 { return openEnd }
        var ahead = try EventLogReader(directory: log.directory, from: .offset(entry.offset))
        let end = try ahead.nextTransaction()?.info.endLSN ?? .zero
        openEnd = end
        return end
    }
}

/// The last changes of a query, and a reader that continues after them.
public struct LastChanges: ~Copyable {
    public private(set) var items: [HistoryItem] = []
    public var reader: HistoryReader

    init(_ count: Int, from reader: consuming HistoryReader) throws {
        self.reader = reader
        while let item = try self.reader.next() {
            items.append(item)
            // Keeps at most about twice as many, so that each item is moved once on average.
            if items.count >= 2 * count + 1024 { items = items.endingWith(count) }
        }
        items = items.endingWith(count)
    }
}

extension HistoryLog {
    /// Returns the last changes of a query without a lower bound. The search looks back in growing steps, so that the
    /// log is not read from its beginning unless there is little to find.
    public func last(_ count: Int, of query: HistoryQuery) throws -> LastChanges {
        let whole = try window(from: nil, to: query.to)
        let segments = try segments()
        let (oldest, newest) = (segments[0].firstOffset, min(segments[segments.count - 1].endOffset, whole.endOffset))
        var distance = UInt64(count) * 4 + 64
        while newest > oldest, newest - oldest > distance {
            var window = whole
            window.firstOffset = newest - distance
            window.start = .offset(window.firstOffset)
            let last = try LastChanges(count, from: HistoryReader(self, query, window: window))
            if last.items.count(where: \.isChange) >= count { return last }
            distance = distance < 1 << 60 ? distance * 8 : .max
        }
        return try LastChanges(count, from: HistoryReader(self, query, window: whole))
    }
}

extension HistoryItem {
    public var isChange: Bool { if case .change = self { true } else { false } }
}

extension [HistoryItem] {
    /// Returns the last `count` changes, with the gaps between them and after them.
    fileprivate func endingWith(_ count: Int) -> [HistoryItem] {
        guard count > 0 else { return [] }
        var left = count
        let start = indices.reversed().first { index in
            if self[index].isChange { left -= 1 }
            return left == 0
        }
        return start.map { Array(self[$0...]) } ?? self
    }
}
