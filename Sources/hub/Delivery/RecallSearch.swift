import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import System

/// Looks through the log backwards for the last versions of rows.
///
/// A version counts only if nothing is known to have happened to the row, or to all rows of its table, behind it; what the
/// log cannot tell for sure is missing.
struct RecallSearch {
    /// The rows of a table that are looked for.
    private struct Wanted {
        /// By which columns the deletes name them.
        let names: [String]
        /// Places in the request.
        var rows: [RowID: Int] = [:]
    }

    /// What changes of one schema say.
    private struct Finder {
        let relation: Relation
        /// Nil where rows of the schema cannot be told apart as the deletes do.
        let columns: RowColumns?
        /// Values that may not mean what they say.
        var unsure: ForeignColumns?
    }

    private enum Event {
        /// `lacks`: values that an update left as they were, and that an older version of the row has.
        case version(UInt64, Relation, [UInt8], lacks: Bool = false)
        case gone
    }

    private let request: RecallRequest
    private var wanted: [UInt32: Wanted] = [:]
    private var finders: [UInt64: Finder] = [:]
    /// Schemas of the segment at hand, as the log has them.
    private var stored: [UInt64: Relation] = [:]
    private let eras: DefinitionEras
    /// The era of the transaction at hand, and that of the request.
    private var era: Int
    private let ownEra: Int
    private var brokenTables: Set<UInt32> = []
    private var answers: [RecallAnswer]
    /// The last that the stretch at hand says of a row.
    private var events: [Int: Event] = [:]
    private var foundBytes = 0
    /// The newest versions of rows that lack values.
    private var lacking: [Int: ComposedRow.Source] = [:]
    private let time: any TimeSource
    private var deadline: UInt64

    init(_ request: RecallRequest, _ time: any TimeSource) {
        self.request = request
        eras = DefinitionEras(request.reading.tables.values)
        ownEra = eras.number(at: request.reading.moment)
        era = ownEra
        answers = request.rows.map { _ in .missing }
        self.time = time
        deadline = time.monotonicNanoseconds() + Limits.recallPatience.wholeNanoseconds
        for (place, row) in request.rows.enumerated() {
            guard let relation = request.relations[row.relation] else { continue }
            let names = relation.columns.filter(\.isIdentity).map(\.name)
            wanted[relation.oid, default: Wanted(names: names)].rows[row.id] = place
        }
    }

    /// The answers, in the order of the request's rows.
    mutating func run(_ outlines: SegmentOutlines) throws -> [RecallAnswer] {
        var log = try LogLookback(outlines, segment: request.segment, before: request.end)
        let epoch = log.segment.epoch
        repeat {
            // What lies before a gap may have changed in it.
            guard log.segment.epoch == epoch else { break }
            try learn(log.relations)
            guard try mayHave(log) else { continue }
            while !wanted.isEmpty, isPatient(log), log.enterStretch() { try readStretch(&log) }
        } while try !wanted.isEmpty && isPatient(log) && log.enterOlderSegment()
        return answers
    }

    private func isPatient(_ log: borrowing LogLookback) -> Bool {
        log.bytesRead < Limits.recallReadBytes && time.monotonicNanoseconds() < deadline
    }

    private mutating func learn(_ relations: [[UInt8]]) throws(ByteError) {
        stored = [:]
        for payload in relations {
            stored[RelationCodec.fingerprint(of: payload.asBytes)] = try RelationCodec.decode(payload.asBytes)
        }
        read(at: request.reading.moment)
    }

    /// Reads schemas by their meaning for transactions of the position.
    private mutating func read(at lsn: LSN) {
        era = eras.number(at: lsn)
        finders = [:]
        for (fingerprint, relation) in stored {
            guard let wanted = wanted[relation.oid] else { continue }
            var (named, unsure): (Relation, ForeignColumns?) = (relation, nil)
            if let table = request.reading.tables[relation.oid] {
                let identities = ColumnIdentities(of: relation, in: table, at: lsn)
                named = relation.renamed(identities, in: table, fingerprint)
                unsure = ForeignColumns(named, table.unsure(named, at: lsn), of: table, identities, at: lsn)
            }
            finders[fingerprint] = Finder(
                relation: named, columns: RowColumns(wanted.names, in: named), unsure: unsure)
        }
    }

    /// Starts on a transaction. Rows of a table from before its present publication are dropped: they may have been overwritten
    /// without a trace in the log.
    private mutating func begin(at position: LSN) {
        let lsn = request.reading.moment == .zero ? .zero : position
        if eras.number(at: lsn) != era { read(at: lsn) }
        brokenTables = Set(
            request.reading.tables.values.filter { !$0.publishedSince.isBehind(lsn) }.map(\.oid))
        for table in brokenTables { lose(table) }
    }

    // MARK: Segments

    /// Whether the segment may say anything about the rows.
    private func mayHave(_ log: borrowing LogLookback) throws(ByteError) -> Bool {
        for finder in finders.values {
            let table = RowKey.table(schema: finder.relation.schema, name: finder.relation.name)
            if log.mayContain(RowKey.unkeyed(table: table)) { return true }
            guard let wanted = wanted[finder.relation.oid] else { continue }
            for place in wanted.rows.values {
                if log.mayContain(try key(request.rows[place], finder.relation, table)) { return true }
            }
        }
        return false
    }

    /// Under what the row is found in segments: all of the table where the delete does not tell the key.
    private func key(
        _ row: RecallRequest.Row, _ relation: Relation, _ table: UInt64
    ) throws(ByteError) -> UInt64 {
        guard let own = request.relations[row.relation], !relation.keyColumns.isEmpty else { return table }
        var hash = RowKey.row(table: table)
        for column in relation.keyColumns {
            guard let place = own.column(named: relation.columns[column].name), own.columns[place].isIdentity,
                case .text(let text)? = try row.key.asTuple.value(at: place)
            else { return table }
            hash.combine(text)
        }
        return hash.value
    }

    // MARK: Stretches

    private mutating func readStretch(_ log: inout LogLookback) throws {
        events.removeAll(keepingCapacity: true)
        while try log.next() {
            switch log.entry.kind {
            case .gap: for table in wanted.keys { lose(table) }
            case .transaction:
                let isLast = log.segment.sequence == request.segment && log.position == request.position
                try read(TransactionPart(log.payload), isLast ? request.changes : .max)
            default: break
            }
        }
        try settle()
    }

    private mutating func read(_ part: consuming TransactionPart, _ count: UInt32) throws(ByteError) {
        begin(at: part.commitLSN)
        var read: UInt32 = 0
        while read < count, let change = try part.next() {
            read += 1
            if let finder = finders[change.relation] { try look(at: change, finder) }
        }
    }

    private mutating func look(at change: borrowing Change, _ finder: Finder) throws(ByteError) {
        let table = finder.relation.oid
        guard change.operation != .truncate, let columns = finder.columns else { return lose(table) }
        if isBroken(table) { return }
        var former: Event?
        // A row that gets another key is gone under the one it had.
        if let old = change.old, let place = try place(of: old, columns) {
            former = events.updateValue(.gone, forKey: place)
        }
        guard let new = change.new else { return }
        if try columns.id(of: new) == nil {
            try look(atPartial: change, former, columns, finder.relation)
        } else if let place = try place(of: new, columns) {
            try note(change, former ?? events[place], at: place, finder.relation)
        }
    }

    private mutating func note(
        _ change: borrowing Change, _ former: Event?, at place: Int, _ relation: Relation
    ) throws(ByteError) {
        let tuple = try whole(change, former, relation)
        // Under another key, or under one that another row had before, it is not known what it was.
        let mayBeOlder =
            if case .gone? = former { false } else { change.operation == .update && change.oldImage != .key }
        let lacks = mayBeOlder ? try tuple.isPartialRow() : false
        let row = request.rows[place]
        guard era != ownEra, let own = request.relations[row.relation] else {
            events[place] = .version(change.relation, relation, tuple, lacks: lacks)
            return
        }
        // The request has other names for the schema's columns.
        let known = try finders[change.relation]?.unsure?.rewritten(tuple.asTuple, [:]) ?? tuple
        let source = ComposedRow.Source(tuple: known, relation: relation)
        events[place] = .version(row.relation, own, try ComposedRow.compose(own, from: [source]), lacks: lacks)
    }

    /// A large key that did not change is only in the old image.
    private mutating func look(
        atPartial change: borrowing Change, _ former: Event?, _ columns: RowColumns, _ relation: Relation
    ) throws(ByteError) {
        let tuple = try whole(change, former, relation)
        guard try columns.id(of: tuple.asTuple) != nil else { return lose(relation.oid) }
        if let place = try place(of: tuple.asTuple, columns) {
            try note(change, former ?? events[place], at: place, relation)
        }
    }

    /// The row after an update, with the values that it left as they were, as far as the stretch has them.
    private func whole(
        _ change: borrowing Change, _ former: Event?, _ relation: Relation
    ) throws(ByteError) -> [UInt8] {
        guard let new = change.new else { return [] }
        guard try new.isPartial() else { return new.bytes.copied() }
        var sources = [ComposedRow.Source(tuple: new.bytes.copied(), relation: relation)]
        if let old = change.old {
            sources.append(
                ComposedRow.Source(tuple: old.bytes.copied(), relation: relation, isKeyOnly: change.oldImage == .key))
        }
        if case .version(_, let relation, let tuple, _)? = former {
            sources.append(ComposedRow.Source(tuple: tuple, relation: relation))
        }
        return try ComposedRow.compose(relation, from: sources)
    }

    /// The row's place among those that are wanted.
    private func place(of row: borrowing Tuple, _ columns: RowColumns) throws(ByteError) -> Int? {
        guard let id = try columns.id(of: row), let wanted = wanted[columns.table], let place = wanted.rows[id] else {
            return nil
        }
        let asked = request.rows[place]
        guard let own = request.relations[asked.relation], let ownColumns = RowColumns(wanted.names, in: own) else {
            return nil
        }
        let key = asked.key
        return try columns.isSame(row, as: key.asTuple, ownColumns) ? place : nil
    }

    private func isBroken(_ table: UInt32) -> Bool { brokenTables.contains(table) }

    /// Nothing that was said of the table's rows up to here holds any more.
    private mutating func lose(_ table: UInt32) {
        guard let wanted = wanted[table] else { return }
        for place in wanted.rows.values { events[place] = .gone }
    }

    /// What the stretch said is the last word, but for values that it does not have.
    private mutating func settle() throws(ByteError) {
        for (place, event) in events {
            guard case .version(let fingerprint, let relation, let tuple, let lacks) = event else {
                forget(place)
                continue
            }
            try found(tuple, fingerprint, relation, at: place)
            if !lacks { forget(place) }
        }
    }

    private mutating func forget(_ place: Int) {
        let id = request.rows[place].id
        lacking[place] = nil
        wanted[id.table]?.rows[id] = nil
        if wanted[id.table]?.rows.isEmpty == true { wanted[id.table] = nil }
    }

    /// A version of a row: the newest one, or an older one that has what that lacks.
    private mutating func found(
        _ tuple: [UInt8], _ fingerprint: UInt64, _ relation: Relation, at place: Int
    ) throws(ByteError) {
        let version = ComposedRow.Source(tuple: tuple, relation: relation)
        guard let newest = lacking[place], case .version(let schema, _, _) = answers[place] else {
            lacking[place] = version
            return take(tuple, fingerprint, relation, at: place)
        }
        let whole = try ComposedRow.compose(newest.relation, from: [newest, version])
        lacking[place] = ComposedRow.Source(tuple: whole, relation: newest.relation)
        take(whole, schema, newest.relation, at: place)
    }

    private mutating func take(_ tuple: [UInt8], _ fingerprint: UInt64, _ relation: Relation, at place: Int) {
        foundBytes += tuple.count
        // The first one is waited for, however large it is.
        let isTaken = place == 0 || foundBytes <= Limits.recallBatchBytes
        answers[place] = isTaken ? .version(fingerprint, relation, tuple) : .postponed
    }
}
