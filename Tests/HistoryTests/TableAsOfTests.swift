import Bytes
import Change
import EventLog
import TestSupport
import Testing

@testable import History

/// Tests that compare a table's reconstructed rows with a model.
@Suite(.within(minutes: 5)) struct TableAsOfTests {
    private static func relation(_ identity: ReplicaIdentity, named name: String = "notes") -> Relation {
        Relation(
            oid: 16_400, schema: "public", name: name, identity: identity,
            columns: [column("id", 23, key: true), column("body", identity: identity == .full)])
    }

    private static func rows(_ log: HistoryLog, to offset: UInt64?) throws -> [String: String?] {
        let table = try TableAsOf(
            log, TableName(schema: "public", name: "notes"), HistoryQuery(to: offset.map { .offset($0) }), atMost: 1000)
        var rows: [String: String?] = [:]
        try table.visit { row in
            #expect(rows.updateValue(row.texts[1], forKey: row.key) == nil, "each row once")
        }
        return rows
    }

    @Test(arguments: seeds(16)) func `has the rows that there were at each place`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let stage = try HistoryStage(segmentBytes: 4000)
        let identity: ReplicaIdentity = random.next() % 2 == 0 ? .full : .primaryKey
        var table = Self.relation(identity)
        let other = Relation(
            oid: 16_500, schema: "public", name: "other", identity: .full,
            columns: [column("id", 23, key: true), column("body", identity: true)])
        var model: [String: String?] = [:]
        var moments: [(offset: UInt64, rows: [String: String?])] = []
        for step in 0..<150 {
            // The table is renamed halfway. It must remain the same table.
            if step == 90 { table = Self.relation(identity, named: "renamed") }
            let known = model.keys.sorted()
            let body: RowValue = random.next() % 5 == 0 ? .null : .text(Array("v\(step)".utf8))
            let old = known.isEmpty ? nil : random.pick(known)
            let oldRow: [RowValue] =
                old.map { id in
                    [.text(Array(id.utf8)), model[id].flatMap { $0 }.map { .text(Array($0.utf8)) } ?? .null]
                } ?? []
            let image: OldImage = identity == .full ? .full : .key
            switch (random.next() % 12, old) {
            case (0, _) where random.next() % 4 == 0:
                try stage.commit([.truncate(table)])
                model = [:]
            case (1...2, let id?):
                try stage.commit([.delete(table, oldRow, image)])
                model[id] = nil
            case (3...5, let id?):
                try stage.commit([
                    .update(
                        table, [.text(Array(id.utf8)), body], old: identity == .full ? oldRow : [],
                        identity == .full ? .full : .none)
                ])
                model[id] = .some(body.plainText)
            case (6, let id?):
                // The large value does not change, so PostgreSQL does not send it.
                try stage.commit([
                    .update(
                        table, [.text(Array(id.utf8)), .unchanged], old: identity == .full ? oldRow : [],
                        identity == .full ? .full : .none)
                ])
            case (7, let id?):
                let moved = "9\(step)"
                try stage.commit([.update(table, [.text(Array(moved.utf8)), body], old: oldRow, image)])
                model[id] = nil
                model[moved] = .some(body.plainText)
            case (8, _): try stage.commit([.insert(other, ["1", "noise"])])
            default:
                try stage.commit([.insert(table, [.text(Array("\(step)".utf8)), body])])
                model["\(step)"] = .some(body.plainText)
            }
            if random.next() % 10 == 0 { moments.append((stage.writer.nextOffset, model)) }
        }
        for moment in moments { #expect(try Self.rows(stage.log, to: moment.offset) == moment.rows) }
        #expect(try Self.rows(stage.log, to: nil) == model)
    }

    /// Checks rows from before the log. A later change of the row, or a reading of the table, makes them known.
    @Test(arguments: seeds(40)) func `has the rows that nothing touched where somebody read them`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let stage = try HistoryStage(segmentBytes: 4000)
        let table = Self.relation(.full)
        var model = Dictionary(uniqueKeysWithValues: (0..<30).map { ("1\($0)", "old \($0)") })
        var moments: [(offset: UInt64, rows: [String: String?])] = [(0, model)]
        let readAt = random.next() % 4 == 0 ? nil : Int.random(in: 0..<60, using: &random)
        let (isTorn, lastOfTruncates) = (random.next() % 4 == 0, random.next() % 3 == 0 ? 30 : 0)
        var waiting: [KeptRows] = []
        var emptied: [UInt64] = []
        var read: Range<UInt64>?
        for step in 0..<60 {
            if step == readAt {
                waiting = Self.parts(of: model, table, LSN(stage.lsn), &random)
                if isTorn { waiting.removeLast() }
                read = stage.writer.nextOffset..<stage.writer.nextOffset
            }
            // The rows that were read enter the log part by part, between other changes.
            if !waiting.isEmpty, random.next() % 2 == 0 || step == 59 {
                for _ in 0..<(step == 59 ? waiting.count : 1) { try stage.keep(waiting.removeFirst()) }
                if let begin = read?.lowerBound { read = begin..<stage.writer.nextOffset }
            }
            let old = model.keys.sorted().randomElement(using: &random)
            let row: (String) -> [RowValue] = { [.text(Array($0.utf8)), .text(Array(model[$0, default: ""].utf8))] }
            let value = RowValue.text(Array("v\(step)".utf8))
            switch (Int.random(in: 0..<10, using: &random), old) {
            case (0, _) where step < lastOfTruncates && waiting.isEmpty:
                emptied.append(stage.writer.nextOffset)
                try stage.commit([.truncate(table)])
                model = [:]
            case (1...2, let id?):
                try stage.commit([.delete(table, row(id), .full)])
                model[id] = nil
            case (3...4, let id?):
                try stage.commit([.update(table, [.text(Array(id.utf8)), value], old: row(id), .full)])
                model[id] = "v\(step)"
            case (5, let id?):
                let other = Int.random(in: 0..<30, using: &random)
                guard model["1\(other)"] == nil else { continue }
                try stage.commit([.update(table, [.text(Array("1\(other)".utf8)), value], old: row(id), .full)])
                model[id] = nil
                model["1\(other)"] = "v\(step)"
            default:
                let id = "1\(Int.random(in: 0..<40, using: &random))"
                guard model[id] == nil else { continue }
                try stage.commit([.insert(table, [.text(Array(id.utf8)), value])])
                model[id] = "v\(step)"
            }
            moments.append((stage.writer.nextOffset, model))
        }
        for moment in moments {
            let known = try TableAsOf(
                stage.log, TableName(schema: "public", name: "notes"), HistoryQuery(to: .offset(moment.offset)),
                atMost: 1000)
            var rows: [String: String?] = [:]
            try known.visit { rows[$0.key] = $0.texts[1] }
            #expect(
                rows.allSatisfy { moment.rows[$0.key] == $0.value }, "nothing that was not there, @\(moment.offset)")
            let isEmptiedBefore = emptied.contains { $0 < moment.offset }
            // A reading before the truncation does not show the rows after it, and the reverse.
            let isRead =
                read.map { read in
                    !isTorn && !emptied.contains { ($0 < moment.offset) != ($0 < read.lowerBound) }
                } ?? false
            #expect(known.isWhole == (isEmptiedBefore || isRead), "@\(moment.offset)")
            if known.isWhole { #expect(rows == moment.rows, "@\(moment.offset)") }
        }
        try expectHistoriesSayTheSame(stage.log)
    }

    /// Checks that a row's history ends with its known version, and that a reading never reports a change that is in no
    /// log.
    private func expectHistoriesSayTheSame(_ log: HistoryLog) throws {
        let table = TableName(schema: "public", name: "notes")
        var known: [String: RowAsOf] = [:]
        try TableAsOf(log, table, HistoryQuery(), atMost: 1000).visit { known[$0.key] = $0 }
        for id in (0..<40).map({ "1\($0)" }) {
            var versions: [RowVersion] = []
            var history = try RowHistory(log, table, RowName([id]), HistoryQuery())
            while let item = try history.next() { if case .version(let version) = item { versions.append(version) } }
            #expect(versions.allSatisfy { !$0.wasRead || $0.differences == nil }, "\(id)")
            // The other versions belong to the row that had this key before.
            let last = versions.last { $0.change.key.first?.value.plainText == id }
            guard let row = known[id], let last else {
                #expect(known[id] == nil, "\(id)")
                continue
            }
            #expect(last.wasRead == (row.witness == .kept), "\(id)")
            #expect(last.change.new.map(\.plainText) == row.texts, "\(id)")
        }
    }

    private static func parts(
        of model: [String: String], _ table: Relation, _ lsn: LSN, _ random: inout SeededRandom
    ) -> [KeptRows] {
        var encoded = ByteWriter()
        RelationCodec.encode(table, to: &encoded)
        var rows = model.map { tuple([.text(Array($0.key.utf8)), .text(Array($0.value.utf8))]) }
        var parts: [KeptRows] = []
        repeat {
            let count = min(rows.count, Int.random(in: 1...20, using: &random))
            parts.append(
                KeptRows(
                    reading: 7, lsn: lsn, time: 1, part: UInt32(parts.count), isLast: count == rows.count,
                    schema: encoded.copied(),
                    rows: rows.prefix(count).map { KeptRows.Row(image: $0) }))
            rows.removeFirst(count)
        } while !rows.isEmpty
        return parts
    }

    @Test func `of two tables that had the name the one is shown that had it last, and none of a database from before`()
        throws
    {
        let stage = try HistoryStage()
        let first = Self.relation(.primaryKey)
        try stage.commit([.insert(first, ["1", "a"])])
        // Another table is created with the old name of the renamed table.
        try stage.commit([.insert(Self.relation(.primaryKey, named: "old"), ["2", "b"])])
        var second = Self.relation(.primaryKey)
        second.oid = 16_401
        try stage.commit([.insert(second, ["7", "new"])])
        let before = stage.writer.nextOffset
        #expect(try Self.rows(stage.log, to: nil) == ["7": "new"])
        #expect(try Self.rows(stage.log, to: 1) == ["1": "a"])
        try stage.gap(.databaseRestored)
        try stage.commit([.insert(second, ["9", "restored"])])
        #expect(try Self.rows(stage.log, to: nil) == ["9": "restored"])
        #expect(try Self.rows(stage.log, to: before) == ["7": "new"])
    }

    @Test func `tells what it cannot know, and gives up where there is too much`() throws {
        let stage = try HistoryStage()
        let table = Self.relation(.primaryKey)
        try stage.commit([.update(table, ["1", .unchanged]), .insert(table, ["2", "b"])])
        let name = TableName(schema: "public", name: "notes")
        let rows = try TableAsOf(stage.log, name, HistoryQuery(), atMost: 10)
        #expect(rows.count == 2 && !rows.isWhole)
        try rows.visit { if $0.key == "1" { #expect($0.values[1].json == nil) } }
        try stage.commit([.truncate(table), .insert(table, ["3", "c"])])
        let emptied = try TableAsOf(stage.log, name, HistoryQuery(), atMost: 10)
        #expect(emptied.count == 1 && emptied.isWhole)
        #expect(throws: TableAsOfError.tooManyRows(most: 1)) {
            _ = try TableAsOf(stage.log, name, HistoryQuery(to: .offset(2)), atMost: 1)
        }
        let unknown = TableName(schema: "public", name: "nots")
        #expect(throws: TableAsOfError.unknownTable(unknown)) {
            _ = try TableAsOf(stage.log, unknown, HistoryQuery(), atMost: 1)
        }
    }
}
