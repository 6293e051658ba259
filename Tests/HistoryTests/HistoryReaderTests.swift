import Change
import EventLog
import System
import TestSupport
import Testing

@testable import History

let notes = Relation(
    oid: 1, schema: "public", name: "notes", identity: .primaryKey,
    columns: [column("id", 23, key: true), column("body"), column("email")])
let users = Relation(
    oid: 2, schema: "app", name: "users", identity: .full,
    columns: [column("id", 2950, key: true, identity: true), column("email", identity: true)])

@Suite(.within(minutes: 10)) struct WindowTests {
    /// Compares windows of every kind with a search through every change, in any order of commit times.
    @Test(arguments: seeds(30)) func `finds what looking at everything finds`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let stage = try HistoryStage(segmentBytes: UInt64.random(in: 700...4000, using: &random))
        // Messages outside of transactions, and idle positions, get the time of the previous entry.
        var times: [UInt64: Int64] = [:]
        var latest = Int64.min
        for step in 0..<Int.random(in: 5...40, using: &random) {
            let first = stage.writer.nextOffset
            let time = Int64.random(in: 0...1000, using: &random) * 1_000_000 + 5_000_000
            switch Int.random(in: 0...9, using: &random) {
            case 0: try stage.gap(to: stage.lsn + 0x80, time: time)
            case 1: try stage.idle(time: time)
            case 2:
                try stage.commit([.message([1], [2], transactional: false)], xid: 0, time: 0)
                times[first] = latest
                continue
            default:
                let relation = Bool.random(using: &random) ? notes : users
                let puts = (0..<Int.random(in: 1...5, using: &random)).map { index in
                    Put.insert(
                        relation, [RowValue(stringLiteral: "\(index)")] + relation.columns.dropFirst().map { _ in "x" })
                }
                try stage.commit(
                    puts, xid: UInt32(step % 9 + 1), time: time, partSize: Int.random(in: 1...6, using: &random))
            }
            latest = time
            for offset in first..<stage.writer.nextOffset { times[offset] = time }
        }
        let all = try stage.log.items(HistoryQuery())
        let changes = all.compactMap(\.recorded)
        #expect(changes.map(\.offset) == Array(0..<stage.writer.nextOffset))
        for _ in 0..<20 {
            var query = HistoryQuery()
            query.from = bound(&random, changes)
            query.to = bound(&random, changes)
            if Bool.random(using: &random) { query.tables = [TableName(schema: "app", name: "users")] }
            let expected = Model(all, times).offsets(query)
            #expect(try stage.log.offsets(query) == expected, "\(query)")
            query.from = nil
            let count = Int.random(in: 0...12, using: &random)
            let last = try stage.log.last(count, of: query)
            #expect(last.items.compactMap { $0.recorded?.offset } == Model(all, times).offsets(query).suffix(count))
        }
    }

    private func bound(_ random: inout SeededRandom, _ changes: [RecordedChange]) -> HistoryBound? {
        let change = changes.randomElement(using: &random)
        switch Int.random(in: 0...5, using: &random) {
        case 0: return .offset(UInt64.random(in: 0...UInt64(changes.count + 3), using: &random))
        case 1: return .time(Int64.random(in: 0...1010, using: &random) * 1_000_000)
        case 2:
            return change.map { .lsn(LSN($0.transaction.commitLSN.rawValue + (Bool.random(using: &random) ? 1 : 0))) }
        case 3: return change.flatMap { $0.transaction.xid == 0 ? nil : .xid($0.transaction.xid) }
        case 4: return .oldest
        default: return nil
        }
    }

    /// Expected content of a window, computed by a search through every change.
    private struct Model {
        let changes: [RecordedChange]
        let times: [UInt64: Int64]

        init(_ items: [HistoryItem], _ times: [UInt64: Int64]) {
            changes = items.compactMap(\.recorded)
            self.times = times
        }

        func offsets(_ query: HistoryQuery) -> [UInt64] {
            changes.filter { change in
                let isWanted = query.tables.isEmpty || query.tables.contains { $0 == change.relation?.table }
                return isWanted && isAfter(query.from, change) && !isAtOrAfter(query.to, change)
            }.map(\.offset)
        }

        private func isAfter(_ bound: HistoryBound?, _ change: RecordedChange) -> Bool {
            bound.map { place($0, change) } ?? true
        }

        private func isAtOrAfter(_ bound: HistoryBound?, _ change: RecordedChange) -> Bool {
            bound.map { place($0, change) } ?? false
        }

        private func place(_ bound: HistoryBound, _ change: RecordedChange) -> Bool {
            switch bound {
            case .oldest: return true
            case .end: return false
            case .offset(let offset): return change.offset >= offset
            case .time(let time): return (times[change.offset] ?? .min) >= time
            case .lsn(let lsn):
                guard let first = changes.first(where: { $0.transaction.commitLSN >= lsn }) else { return false }
                return change.offset >= first.offset
            case .xid(let xid):
                let last = changes.last { $0.transaction.xid == xid }
                let first = changes.first { $0.transaction.commitLSN == last?.transaction.commitLSN }
                return change.offset >= first?.offset ?? .max
            }
        }
    }
}

@Suite(.within(minutes: 10)) struct ReaderTests {
    @Test func `shows gaps in the middle, also where segments are passed over`() throws {
        let stage = try HistoryStage()
        try stage.commit([.insert(notes, ["1", "a", .null])])
        try stage.gap(.slotInvalidated, to: 0x10)
        try stage.commit([.insert(notes, ["2", "b", .null])])
        try stage.gap()
        try stage.commit([.insert(users, ["u", "c"])])
        var query = HistoryQuery()
        query.tables = [TableName(schema: "app", name: "users")]
        let items = try stage.log.items(query)
        #expect(items.map(\.isChange) == [false, false, true])
        guard case .gap(let gap) = items[0] else { return }
        #expect(gap.gap.reason == .slotInvalidated && gap.offset == 1 && gap.epoch == 8)
    }

    @Test func `shows who was there only when asked, and within the window`() throws {
        let stage = try HistoryStage()
        try stage.commit([.insert(notes, ["1", "a", "x"])], xid: 1, time: 1_000_000)
        let marks = [2, 4, 6].map { second in
            PresenceMark(
                event: .joined, isPrivate: false, time: second * 1_000_000, topic: Array("room".utf8), key: [49],
                ref: [],
                meta: Array("{}".utf8))
        }
        try stage.note(marks, time: 6_000_000)
        try stage.commit([.insert(notes, ["2", "b", "y"])], xid: 2, time: 7_000_000)
        var query = HistoryQuery()
        #expect(try stage.log.items(query).count == 2)
        query.includesPresence = true
        let all = try stage.log.items(query)
        #expect(all.map(\.isChange) == [true, false, false, false, true])
        query.from = .time(3_000_000)
        query.to = .time(6_000_000)
        let found = try stage.log.items(query).compactMap { item in
            if case .presence(let presence) = item { presence } else { nil }
        }
        #expect(found.map(\.mark) == [marks[1]] && found.map(\.offset) == [1])
    }

    @Test func `knows the end of a transaction of several parts in each of them`() throws {
        let stage = try HistoryStage()
        let puts = (0..<7).map { Put.insert(notes, [RowValue(stringLiteral: "\($0)"), "b", .null]) }
        let info = try stage.commit(puts, xid: 5, partSize: 2)
        let changes = try stage.log.items(HistoryQuery()).compactMap(\.recorded)
        #expect(changes.allSatisfy { $0.transaction == info })
        #expect(changes.map(\.index) == Array(0..<7))
        var found: [RecordedTransaction] = []
        try stage.log.transactions(.xid(5)) {
            found.append($0); return true
        }
        #expect(found.map(\.offsets) == [0..<7])
        try stage.log.transactions(.lsn(info.endLSN)) {
            found.append($0); return true
        }
        #expect(found.count == 2)
    }

    @Test(arguments: seeds(20)) func `finds each transaction by its number, also where segments are passed over`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let stage = try HistoryStage(segmentBytes: 900)
        var offsets: [UInt32: [Range<UInt64>]] = [:]
        for _ in 0..<60 {
            let xid = UInt32.random(in: 1...40, using: &random)
            let count = Int.random(in: 1...4, using: &random)
            let begin = stage.writer.nextOffset
            let puts = (0..<count).map { Put.insert(notes, [RowValue(stringLiteral: "\($0)"), "a", .null]) }
            try stage.commit(puts, xid: xid, partSize: Int.random(in: 1...4, using: &random))
            offsets[xid, default: []].append(begin..<stage.writer.nextOffset)
        }
        for log in [stage.log, try imported(try stage.log.export(), segmentBytes: 900)] {
            for xid in 0...41 as ClosedRange<UInt32> {
                var found: [Range<UInt64>] = []
                try log.transactions(.xid(xid)) { transaction in
                    found.append(transaction.offsets)
                    return true
                }
                #expect(found.reversed() == offsets[xid] ?? [])
            }
        }
        // A segment with an index of an earlier version, which lacks transactions, must be read.
        #expect(try EventLogReader.mayContain(7, scheme: 2, segment: 1, in: stage.storage))
    }

    @Test func `filters rows and masks what is shown`() throws {
        let stage = try HistoryStage()
        try stage.commit([
            .insert(notes, ["1", "a", "x@y"]), .update(notes, ["1", "", .null]),
            .delete(notes, ["1", .null, .null]), .update(notes, ["2", .unchanged, "z"]),
        ])
        func found(_ conditions: String...) throws -> [UInt64] {
            var query = HistoryQuery()
            query.conditions = conditions.compactMap { RowCondition($0) }
            #expect(query.conditions.count == conditions.count)
            return try stage.log.offsets(query)
        }
        #expect(try found("id=1") == [0, 1, 2])
        #expect(try found("id!=1") == [3])
        #expect(try found("body=") == [1])
        #expect(try found("id=1", "body=a") == [0])
        // A key image does not contain the other columns, and an unsent value is unknown.
        #expect(try found("email is null") == [1])
        #expect(try found("body is not null") == [0, 1])
        let shown = try stage.log.hiding("notes.email").items(HistoryQuery()).compactMap(\.recorded)
        #expect(shown[0].new[2].isMasked && shown[1].new[2] == .null)
    }

    @Test func `goes on where it stopped when more is written`() throws {
        let stage = try HistoryStage(segmentBytes: 600)
        try stage.commit([.insert(notes, ["1", "a", .null])])
        var reader = try HistoryReader(stage.log, HistoryQuery())
        #expect(try reader.next()?.recorded?.offset == 0)
        for offset in 1..<30 as Range<UInt64> {
            #expect(try reader.next() == nil)
            try stage.commit([.insert(notes, ["1", "abcdefgh", .null])])
            #expect(try reader.next()?.recorded?.offset == offset)
        }
        #expect(stage.writer.segmentSequence > 3)
    }

    @Test func `says when the start was deleted`() throws {
        let stage = try HistoryStage(segmentBytes: 600)
        for _ in 0..<20 { try stage.commit([.insert(notes, ["1", "abcdefgh", .null])], time: 50_000_000) }
        stage.storage.delete("0000000001.segment")
        let oldest = try stage.log.segments()[0].firstOffset
        for bound in [HistoryBound.offset(0), .time(3), .lsn(LSN(0x10))] {
            #expect(throws: HistoryError.self) { try HistoryReader(stage.log, HistoryQuery(from: bound)).offset }
        }
        #expect(try stage.log.offsets(HistoryQuery(from: .oldest)).first == oldest)
    }
}

@Suite(.within(minutes: 10)) struct RowHistoryTests {
    private func versions(_ stage: HistoryStage, _ table: String, _ name: [String]) throws -> [RowVersion] {
        let table = TableName(table) ?? TableName(schema: "", name: "")
        var history = try RowHistory(stage.log, table, RowName(name), HistoryQuery())
        var versions: [RowVersion] = []
        while let item = try history.next() { if case .version(let version) = item { versions.append(version) } }
        return versions
    }

    @Test func `tells every version, what changed, and follows the key`() throws {
        let stage = try HistoryStage(segmentBytes: 700)
        try stage.commit([.insert(notes, ["1", "a", "x"]), .insert(notes, ["2", "other", "x"])])
        for index in 0..<20 {
            try stage.commit([.insert(notes, [RowValue(stringLiteral: "1\(index)"), "noise", "n"])])
        }
        try stage.commit([.update(notes, ["1", "b", .unchanged])])
        try stage.commit([.update(notes, ["9", "b", "x"], old: ["1", .null, .null], .key)])
        for index in 0..<20 {
            try stage.commit([.insert(notes, [RowValue(stringLiteral: "2\(index)"), "noise", "n"])])
        }
        try stage.commit([.update(notes, ["9", "c", "x"])])
        try stage.commit([.truncate(notes)])
        try stage.commit([.truncate(notes)])
        let found = try versions(stage, "notes", ["1"])
        #expect(found.map(\.change.operation) == [.insert, .update, .update, .update, .truncate])
        #expect(found[1].differences?.map(\.column) == [1])
        #expect(found[1].differences?.first?.before == "a")
        #expect(found[2].formerKey == ["1"])
        #expect(found[3].differences?.map(\.before) == ["b"])
        #expect(try versions(stage, "notes", ["email=n"]).count == 40)
    }

    @Test func `a row that was read is shown where no change says the same of it`() throws {
        let stage = try HistoryStage(segmentBytes: 700)
        func noise() throws {
            for index in 0..<20 {
                try stage.commit([.insert(notes, [RowValue(stringLiteral: "1\(index)"), "noise", "n"])])
            }
        }
        try stage.commit([
            .insert(notes, ["2", "b", "x"]), .insert(notes, ["3", "c", "x"]), .insert(notes, ["4", "d", "x"]),
            .delete(notes, ["4", "d", "x"], .full),
        ])
        try noise()
        try stage.keep(
            stage.read([["1", "a", "x"], ["2", "b", "x"], ["3", "o", "x"], ["4", "e", .unchanged]], of: notes))
        let late = stage.read([["1", "a", "x"], ["2", "b", "x"], ["5", "f", "x"], ["6", "g", "x"]], of: notes)
        try noise()
        try stage.commit([.update(notes, ["1", "z", .unchanged]), .delete(notes, ["5", "f", "x"], .full)])
        // The rows enter the log after later commits.
        try stage.keep(late)
        let one = try versions(stage, "notes", ["1"])
        #expect(one.map(\.wasRead) == [true, false] && one[0].differences == nil)
        #expect(one[0].change.new == ["1", "a", "x"] && one[0].change.offset == 24)
        #expect(one[1].differences?.map(\.before) == ["a"])
        // The row may have been read after a commit that enters the log a moment later. So the difference is no new
        // version.
        #expect(try versions(stage, "notes", ["2"]).map(\.wasRead) == [false])
        #expect(try versions(stage, "notes", ["3"]).map(\.wasRead) == [false])
        #expect(try versions(stage, "notes", ["4"]).map(\.wasRead) == [false, false])
        #expect(try versions(stage, "notes", ["5"]).map(\.wasRead) == [false])
        #expect(try versions(stage, "notes", ["6"]).map(\.wasRead) == [true])
        #expect(try versions(stage, "notes", ["7"]).isEmpty)
        #expect(try versions(stage, "notes", ["body=f"]).map(\.wasRead) == [false, true])
        // After a gap the difference is a version, because the row may have changed during the gap.
        try stage.gap(.slotMissing)
        try stage.keep(stage.read([["2", "b", "x"], ["3", "o", .unchanged], ["4", "e", "x"]], of: notes))
        #expect(try versions(stage, "notes", ["2"]).map(\.wasRead) == [false])
        let three = try versions(stage, "notes", ["3"])
        #expect(three.map(\.wasRead) == [false, true])
        #expect(three[1].differences?.map(\.column) == [1] && three[1].differences?.first?.before == "c")
        #expect(try versions(stage, "notes", ["4"]).map(\.wasRead) == [false, false, true])
        // A row read before the truncation no longer belongs to the table.
        let old = stage.read([["8", "h", "x"]], of: notes)
        try stage.commit([.truncate(notes)])
        try stage.keep(old)
        #expect(try versions(stage, "notes", ["8"]).isEmpty)
    }

    private func renamed(_ relation: Relation, _ name: String, oid: UInt32? = nil) -> Relation {
        var other = relation
        other.name = name
        other.oid = oid ?? relation.oid
        return other
    }

    @Test func `follows a table through renames, in segments that have no other key`() throws {
        let stage = try HistoryStage(segmentBytes: 700)
        func noise(_ relation: Relation) throws {
            for index in 0..<20 {
                try stage.commit([.insert(relation, [RowValue(stringLiteral: "1\(index)"), "noise", "n"])])
            }
        }
        var wide = renamed(notes, "papers")
        wide.columns.append(column("more"))
        try stage.commit([.insert(notes, ["1", "a", "x"])])
        try noise(notes)
        try stage.commit([.update(renamed(notes, "papers"), ["1", "b", "x"])])
        try noise(renamed(notes, "papers"))
        try stage.commit([.update(wide, ["1", "c", "x", "m"])])
        // Another table with other rows now has the old name.
        let other = renamed(notes, "notes", oid: notes.oid + 1)
        try stage.commit([.insert(other, ["1", "z", "x"])])
        try stage.commit([.truncate(other)])
        try stage.commit([.update(wide, ["1", "d", "x", "m"])])
        let byNew = try versions(stage, "papers", ["1"])
        #expect(byNew.map { $0.change.relation?.relation.name } == ["notes", "papers", "papers", "papers"])
        #expect(byNew.map { $0.differences?.first?.before } == [nil, "a", "b", "c"])
        #expect(
            try versions(stage, "notes", ["1"]).map(\.change.operation) == [
                .insert, .update, .update, .insert, .truncate, .update,
            ])
    }

    @Test func `an oid of another database is another table`() throws {
        for (reason, count) in [(Gap.Reason.otherDatabase, 1), (.databaseRestored, 1), (.slotMissing, 2)] {
            let stage = try HistoryStage()
            try stage.commit([.insert(notes, ["1", "a", "x"])])
            try stage.gap(reason)
            try stage.commit([.insert(renamed(notes, "papers"), ["1", "b", "x"])])
            #expect(try versions(stage, "papers", ["1"]).count == count)
        }
    }

    @Test func `a mask holds under every name of its table`() throws {
        let stage = try HistoryStage()
        let people = renamed(users, "people")
        try stage.commit([.insert(users, ["7f3c0000-0000-4000-8000-000000000001", "secret"])])
        try stage.commit([.insert(people, ["7f3c0000-0000-4000-8000-000000000002", "secret"])])
        for text in ["app.users.email", "people.email"] {
            let log = stage.log.hiding(text)
            let shown = try log.items(HistoryQuery()).compactMap { $0.recorded?.new[1] }
            // Masked values reveal only that they are equal.
            #expect(shown.count == 2 && shown[0].isMasked && shown[0] == shown[1])
            let lines = String(decoding: try log.export().joined(), as: UTF8.self)
            #expect(!lines.contains("secret"))
        }
    }

    @Test func `a row that gets another key and changes in one transaction is followed there`() throws {
        let stage = try HistoryStage()
        try stage.commit([
            .insert(notes, ["1", "a", "x"]), .insert(notes, ["2", "b", "x"]),
            .update(notes, ["9", "a", "x"], old: ["1", .null, .null], .key), .update(notes, ["9", "c", "x"]),
            .update(notes, ["2", "d", "x"]),
        ])
        #expect(try versions(stage, "notes", ["1"]).map(\.change.offset) == [0, 2, 3])
    }

    @Test func `before retention is before retention, whatever the table`() throws {
        let stage = try HistoryStage(segmentBytes: 700)
        for index in 0..<40 { try stage.commit([.insert(notes, [RowValue(stringLiteral: "\(index)"), "a", "x"])]) }
        stage.storage.delete("0000000001.segment")
        let old = HistoryQuery(from: .offset(0))
        for table in [TableName(schema: "public", name: "notes"), TableName(schema: "public", name: "gone")] {
            #expect(throws: HistoryError.self) { _ = try RowHistory(stage.log, table, RowName(["1"]), old) }
        }
    }

    @Test func `takes a uuid in any case`() throws {
        let stage = try HistoryStage()
        try stage.commit([.insert(users, ["7f3c0000-0000-4000-8000-000000000001", "e"])])
        #expect(try versions(stage, "app.users", ["7F3C0000-0000-4000-8000-000000000001"]).count == 1)
        #expect(try versions(stage, "app.users", ["id=7F3C00000000400080000000-00000001"]).count == 1)
        #expect(throws: RowNameError.self) { try versions(stage, "app.users", ["a", "b"]) }
        #expect(throws: RowNameError.self) { try versions(stage, "users", ["a"]) }
    }

    @Test func `who was there is told beside the changes of one table, also where the log has none of them`() throws {
        let stage = try HistoryStage(segmentBytes: 100_000)
        func table(_ oid: UInt32, _ name: String) -> Relation {
            Relation(
                oid: oid, schema: "public", name: name, identity: .primaryKey,
                columns: [column("id", 23, key: true), column("body")])
        }
        let long = RowValue.text([UInt8](repeating: 65, count: 3000))
        try stage.commit([.insert(table(1, "wanted"), ["1", "b"])])
        for number in 0..<200 {
            if number == 90 {
                try stage.note(
                    [
                        PresenceMark(
                            event: .joined, isPrivate: false, time: 5, topic: [65], key: [66], ref: [67], meta: [])
                    ],
                    time: 5)
            }
            try stage.commit([.insert(table(2, "other"), [.text(Array("\(number)".utf8)), long])])
        }
        var query = HistoryQuery()
        query.tables = [TableName(schema: "public", name: "wanted")]
        query.includesPresence = true
        let items = try stage.log.items(query)
        #expect(items.count(where: \.isChange) == 1 && items.count == 2)
    }
}
