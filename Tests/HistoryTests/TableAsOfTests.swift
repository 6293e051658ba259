import Bytes
import Change
import EventLog
import TestSupport
import Testing

@testable import History

/// A table's rows at a place, beside a model that was there.
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
            // Renamed on the way: it is the same table.
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
                // The large value stays, and is not sent.
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

    @Test func `of two tables that had the name the one is shown that had it last, and none of a database from before`()
        throws
    {
        let stage = try HistoryStage()
        let first = Self.relation(.primaryKey)
        try stage.commit([.insert(first, ["1", "a"])])
        // It is called otherwise from here on, and another is made in its place.
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
