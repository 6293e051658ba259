import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import System

/// Backward search in the log for the last versions of rows.
///
/// A version counts only if no later entry may have changed the row. If the log is not sure about a row, the row counts
/// as missing. If the search takes too long, the row counts as unread, and the hub tells its clients.
struct RecallSearch {
    /// Rows of one table that the search looks for, and the columns that identify them.
    private struct Wanted {
        /// Names of the replica identity columns, by which a delete identifies its row.
        let names: [String]
        /// Indices of the rows in `RecallRequest.rows`.
        var rows: [RowID: Int] = [:]
    }

    /// Schema with the columns by which the search recognizes rows in its changes.
    private struct Finder {
        let relation: Relation
        /// Replica identity columns of the table, as indices in this schema; nil if the schema lacks one of them.
        let columns: RowColumns?
        /// Columns whose stored values may have had another meaning; nil if there are none.
        var unsure: ForeignColumns?
    }

    /// Last event of a row within a stretch, a piece of a segment that is read forwards.
    private enum Event {
        /// A version of the row, with its schema. `lacks` is true if it lacks unchanged values that an older version
        /// may have.
        case version(UInt64, Relation, [UInt8], lacks: Bool = false)
        /// The row was deleted or its key changed, or the log may lack changes of it.
        case gone
    }

    private let request: RecallRequest
    private var wanted: [UInt32: Wanted] = [:]
    private var finders: [UInt64: Finder] = [:]
    /// Schemas of the current segment, as stored.
    private var stored: [UInt64: Relation] = [:]
    private let eras: DefinitionEras
    /// Index in `eras` of the range that contains the transaction that the search is reading.
    private var era: Int
    /// Index in `eras` of the range that contains the transaction for whose rows the search is.
    private let ownEra: Int
    private var brokenTables: Set<UInt32> = []
    private var answers: [RecallAnswer]
    /// Last event of each row in the current stretch (piece of a segment), by the row's index in `RecallRequest.rows`.
    private var events: [Int: Event] = [:]
    private var foundBytes = 0
    /// Newest versions of rows that still lack values, by the row's index in `RecallRequest.rows`.
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

    /// Returns an answer for each row of the request, in order.
    mutating func run(_ outlines: SegmentOutlines) throws -> [RecallAnswer] {
        var log = try LogLookback(outlines, segment: request.segment, before: request.end)
        let epoch = log.segment.epoch
        repeat {
            // Rows may have changed in a gap without an entry, so older segments say nothing about them.
            guard log.segment.epoch == epoch else { break }
            try learn(log.relations)
            guard try mayHave(log) else { continue }
            while !wanted.isEmpty, isPatient(log), log.enterStretch() { try readStretch(&log) }
        } while try !wanted.isEmpty && isPatient(log) && log.enterOlderSegment()
        if !isPatient(log) { giveUp() }
        return answers
    }

    /// Marks as unread the rows that were not found yet, and those whose version still lacks values.
    private mutating func giveUp() {
        for place in wanted.values.flatMap(\.rows.values) { answers[place] = .unread }
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

    /// Finds the wanted tables' key columns in the segment's schemas, by the column names that apply to transactions at
    /// this WAL position.
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

    /// Begins a transaction, which is older than those read before. Drops the tables that were published again after
    /// it: their rows may have changed without an entry in the log.
    private mutating func begin(at position: LSN) {
        let lsn = request.reading.moment == .zero ? .zero : position
        if eras.number(at: lsn) != era { read(at: lsn) }
        brokenTables = Set(
            request.reading.tables.values.filter { !$0.publishedSince.isBehind(lsn) }.map(\.oid))
        for table in brokenTables { lose(table) }
    }

    // MARK: Segments

    /// True if the current segment may contain changes of rows that the search looks for.
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

    /// Returns the hash by which segments list the row. If the delete does not contain the primary key, returns the
    /// hash of the table.
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
        // A change of the key removes the row under its old key.
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
        // If the row had another key before, or another row had this key, older versions under this key are not its
        // own.
        let mayBeOlder =
            if case .gone? = former { false } else { change.operation == .update && change.oldImage != .key }
        let lacks = mayBeOlder ? try tuple.isPartialRow() : false
        let row = request.rows[place]
        guard era != ownEra, let own = request.relations[row.relation] else {
            events[place] = .version(change.relation, relation, tuple, lacks: lacks)
            return
        }
        // The request's schema may have other names for these columns.
        let known = try finders[change.relation]?.unsure?.rewritten(tuple.asTuple, [:]) ?? tuple
        let source = ComposedRow.Source(tuple: known, relation: relation)
        events[place] = .version(row.relation, own, try ComposedRow.compose(own, from: [source]), lacks: lacks)
    }

    /// Records an update whose new image lacks the key: PostgreSQL leaves a large unchanged key out of the new image.
    private mutating func look(
        atPartial change: borrowing Change, _ former: Event?, _ columns: RowColumns, _ relation: Relation
    ) throws(ByteError) {
        let tuple = try whole(change, former, relation)
        guard try columns.id(of: tuple.asTuple) != nil else { return lose(relation.oid) }
        if let place = try place(of: tuple.asTuple, columns) {
            try note(change, former ?? events[place], at: place, relation)
        }
    }

    /// Returns the row after an update, with the unchanged values that the current stretch (piece of a segment) has
    /// shown.
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

    /// Returns the row's index in `RecallRequest.rows`; nil if the search does not look for it.
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

    /// Marks as `gone` all rows of the table that the search looks for, because earlier entries no longer show their
    /// state.
    private mutating func lose(_ table: UInt32) {
        guard let wanted = wanted[table] else { return }
        for place in wanted.rows.values { events[place] = .gone }
    }

    /// Turns the last events of a stretch (piece of a segment) into answers. They are final, except that older
    /// stretches may have values that a version lacks.
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

    /// Stores a version of a row: the newest one, or an older one that has values which the newest lacks.
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
        // The first row is always returned, however large it is.
        let isTaken = place == 0 || foundBytes <= Limits.recallBatchBytes
        answers[place] = isTaken ? .version(fingerprint, relation, tuple) : .postponed
    }
}
