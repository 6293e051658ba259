import Bytes
import Change
import EventLog
import System
import TestSupport
import Testing

@testable import History

@Suite(.within(minutes: 10)) struct ExportTests {
    /// Returns a random log with every kind of entry.
    private func randomLog(_ random: inout SeededRandom) throws -> HistoryStage {
        let stage = try HistoryStage(segmentBytes: UInt64.random(in: 700...6000, using: &random))
        var relations = [notes, users]
        for step in 0..<Int.random(in: 1...40, using: &random) {
            let time = Int64.random(in: -1_000_000_000_000...2_000_000_000_000_000, using: &random)
            switch Int.random(in: 0...12, using: &random) {
            case 0: try stage.gap(Gap.Reason.allCases.randomElement(using: &random) ?? .slotMissing, time: time)
            case 1: try stage.idle(time: time)
            case 2: relations[0].columns.append(column("new \"\(step)\" é"))
            case 3:
                let bytes: [UInt8] = (0..<9).map { _ in UInt8.random(in: 0...255, using: &random) }
                try stage.writer.append(
                    kind: EntryKind(rawValue: 77), lsn: stage.writer.appendedLSN, time: time, payload: bytes.span.bytes)
            case 4:
                let rows = (0..<3).map { _ in relations[0].columns.map { _ in value(&random) } }
                try stage.keep(stage.read(rows, of: relations[0]))
            default:
                let puts = (0..<Int.random(in: 1...6, using: &random)).map { _ in put(relations, &random) }
                try stage.commit(
                    puts, xid: UInt32.random(in: 0...UInt32.max, using: &random), time: time,
                    origin: Bool.random(using: &random) ? "" : "naïve \"origin\"",
                    partSize: Int.random(in: 1...7, using: &random))
            }
        }
        try stage.writer.flush()
        return stage
    }

    private func put(_ relations: [Relation], _ random: inout SeededRandom) -> Put {
        let relation = relations[Int.random(in: 0..<relations.count, using: &random)]
        func row() -> [RowValue] { relation.columns.map { _ in value(&random) } }
        let image: OldImage = Bool.random(using: &random) ? .key : .full
        switch Int.random(in: 0...5, using: &random) {
        case 0: return .insert(relation, row())
        case 1: return .update(relation, row())
        case 2: return .update(relation, row(), old: row(), image)
        case 3: return .delete(relation, row(), image)
        case 4: return .truncate(relation, options: UInt8.random(in: 0...3, using: &random))
        default:
            let bytes: [UInt8] = (0..<5).map { _ in UInt8.random(in: 0...255, using: &random) }
            return .message(Array("préfixe\u{0}".utf8), bytes, transactional: Bool.random(using: &random))
        }
    }

    private func value(_ random: inout SeededRandom) -> RowValue {
        switch Int.random(in: 0...6, using: &random) {
        case 0: .null
        case 1: .unchanged
        case 2: ""
        case 3: .binary([0, 255, 7])
        case 4: .text([0xff, 0xfe])
        case 5: "say \"hi\"\\ \n\t\u{1} é 😀"
        default: RowValue(stringLiteral: String(UInt32.random(in: 0...99, using: &random)))
        }
    }

    private struct Entry: Equatable {
        var header: [UInt64]
        var payload: [UInt8]
    }

    /// Returns all entries except schemas, whose places depend on the beginnings of segments.
    private func entries(_ log: HistoryLog) throws -> [Entry] {
        var reader = try EventLogReader(directory: log.directory)
        var entries: [Entry] = []
        while try reader.next() {
            let entry = reader.entry
            guard entry.kind != .relation else { continue }
            entries.append(
                Entry(
                    header: [
                        UInt64(entry.kind.rawValue), entry.offset, UInt64(entry.changeCount), entry.lsn, entry.epoch,
                        UInt64(bitPattern: entry.time), entry.isContinued ? 1 : 0, reader.segmentHeader.source,
                    ], payload: reader.payload.copied()))
        }
        return entries
    }

    @Test(arguments: seeds(40)) func `an import is the same log, and exports the same`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let stage = try randomLog(&random)
        let lines = try stage.log.export()
        let copy = try imported(lines, segmentBytes: UInt64.random(in: 700...5000, using: &random))
        #expect(try entries(copy) == entries(stage.log))
        #expect(try copy.export() == lines)
        #expect(try EventLogVerifier.verify(copy.directory).allSatisfy { $0.problems.isEmpty })
        // A window of the log must also have whole transactions at the same offsets.
        let end = stage.writer.nextOffset
        let from = UInt64.random(in: 0...end, using: &random)
        let window = try stage.log.export(
            from: .offset(from), to: .offset(UInt64.random(in: from...end, using: &random)))
        #expect(try imported(window).export() == window)
    }

    @Test(arguments: seeds(10)) func `a changed line is refused with its number, or read`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let lines = try randomLog(&random).log.export()
        for _ in 0..<60 {
            var changed = lines
            let index = Int.random(in: 0..<lines.count, using: &random)
            switch Int.random(in: 0...3, using: &random) {
            case 0: changed.remove(at: index)
            case 1: changed.insert(lines[Int.random(in: 0..<lines.count, using: &random)], at: index)
            case 2: changed[index].remove(at: Int.random(in: 0..<changed[index].count - 1, using: &random))
            default:
                let at = Int.random(in: 0..<changed[index].count - 1, using: &random)
                changed[index][at] = Array("\"{}[]:,0129abnx/@".utf8).randomElement(using: &random) ?? 0
            }
            do { _ = try imported(changed) } catch let refusal as ImportRefusal {
                #expect((1...changed.count + 1).contains(refusal.line))
            }
        }
    }

    @Test(arguments: seeds(10)) func `every bit of an imported log that changes is damage`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let copy = try imported(try randomLog(&random).log.export(), segmentBytes: 5000)
        let storage = try #require(copy.directory as? FaultyStorage)
        let segments = try copy.segments()
        for _ in 0..<60 {
            let segment = random.pick(segments)
            let digits = String(segment.sequence)
            let name = String(repeating: "0", count: 10 - digits.count) + digits + ".segment"
            let damaged = storage.copy()
            damaged.flipBit(Int.random(in: 0..<Int(segment.bytes) * 8, using: &random), in: name)
            let problems = try EventLogVerifier.verify(damaged).flatMap(\.problems)
            #expect(problems.contains { $0.isDamage }, "\(name): \(problems)")
        }
    }

    @Test(
        arguments: [
            (1, #""offset":0"#, #""offset":18446744073709551610"#, "an offset that no log"),
            (3, #""first_index":0"#, #""first_index":4000000000"#, "first_index is 4000000000"),
            (5, #""commit_lsn":"0/1040""#, #""commit_lsn":"0/10""#, "a commit_lsn before"),
            (8, #""end_lsn":"0/1070""#, #""end_lsn":"0/10F0""#, "an end_lsn that is not"),
            (8, #""first_index":2"#, #""first_index":1"#, "first_index is 1 where 2"),
            (8, #""xid":1"#, #""xid":2"#, "another transaction"),
        ])
    func `refuses transactions that cannot have been`(line: Int, was: String, becomes: String, reason: String) throws {
        let stage = try HistoryStage()
        let row = Put.insert(notes, ["2", "a", .null])
        try stage.commit([row])
        try stage.commit([row, row, row], partSize: 2)
        var lines = try stage.log.export().map { String(decoding: $0, as: UTF8.self) }
        try #require(lines[line - 1].contains(was), "\(lines[line - 1])")
        lines[line - 1].replace(was, with: becomes)
        do {
            _ = try imported(lines.map { Array($0.utf8) })
            Issue.record("it was taken")
        } catch let refusal as ImportRefusal {
            #expect(refusal.line == line && refusal.reason.contains(reason), "\(refusal)")
        }
    }

    /// Checks damage in any part of a transaction, in the last segment or an earlier one: the export must end after a
    /// whole transaction.
    @Test(arguments: seeds(30)) func `an export writes no part of a transaction of which another part is damaged`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let stage = try HistoryStage(segmentBytes: 3000)
        let row = Put.insert(notes, ["2", "a", .null])
        for _ in 0..<20 {
            let count = Int.random(in: 1...9, using: &random)
            try stage.commit([Put](repeating: row, count: count), partSize: Int.random(in: 1...3, using: &random))
        }
        let whole = try stage.log.export()
        let segment = random.pick(try stage.log.segments())
        let digits = String(segment.sequence)
        let name = String(repeating: "0", count: 10 - digits.count) + digits + ".segment"
        let damaged = stage.storage.copy()
        damaged.flipBit(Int.random(in: 128 * 8..<Int(segment.bytes) * 8, using: &random), in: name)
        var written: [[UInt8]] = []
        do {
            var export = try LogExport(HistoryLog(directory: damaged, masking: .nothing), from: nil, to: nil)
            try export.run { written.append($0.copied()) }
            // No later entry confirms the last flush. If that flush is lost, the log ends earlier, and so does the
            // export.
            #expect(written.popLast()?.starts(with: Array(#"{"type":"end""#.utf8)) == true)
        } catch is EventLogError {}
        #expect(written.count < whole.count && written == Array(whole.prefix(written.count)))
        // The next line of the whole export must begin another transaction, or must not be a change.
        let next = String(decoding: whole[written.count], as: UTF8.self)
        #expect(!next.hasPrefix(#"{"type":"change""#), "\(next)")
        let isInside = written.last { $0.starts(with: Array(#"{"type":"transaction""#.utf8)) }.map {
            String(decoding: $0, as: UTF8.self).contains(#""continued":true"#)
        }
        #expect(isInside != true)
    }

    /// Checks that the catalog records of an imported log can be found. A record that is not found would be useless.
    @Test func `what the catalog said is found in an imported log`() throws {
        let stage = try HistoryStage()
        for step in 0..<40 {
            if step % 10 == 5 {
                let record = CatalogRecord(
                    time: 1, since: stage.writer.nextOffset, unknownFrom: stage.writer.nextOffset,
                    serverVersion: 150_000, publication: "p", awaited: [], roles: ["a"], answers: [])
                try stage.note([record], time: 1)
            }
            try stage.commit([.insert(notes, [RowValue(stringLiteral: "\(step)"), "a", .null])])
        }
        let copy = try imported(try stage.log.export(), segmentBytes: 700)
        #expect(try copy.segments().count > 4)
        var reader = try EventLogReader(directory: copy.directory, from: .oldest, matchingAnyOf: [RowKey.catalog])
        var found = 0
        while try reader.next() { if reader.entry.kind == .catalogRecord { found += 1 } }
        #expect(found == 4)
    }

    /// Checks filters, claims and presence payloads. They may contain values that a mask must hide.
    @Test func `with a mask nothing goes out that cannot be masked`() throws {
        let stage = try HistoryStage()
        let secret = "planted@example.org"
        let table = Relation(
            oid: 16_400, schema: "public", name: "notes", identity: .primaryKey,
            columns: [column("id", 23, key: true), column("email")])
        try stage.commit([.insert(table, ["1", .text(Array(secret.utf8))])])
        var note = LedgerNote(.joined, time: 1, session: 1, channel: 1)
        note.bindings = Array(#"[{"table":"notes","filter":"email=eq.\#(secret)"}]"#.utf8)
        note.claims = Array(#"{"email":"\#(secret)"}"#.utf8)
        try stage.note([note])
        let meta = Array(#"{"email":"\#(secret)"}"#.utf8)
        try stage.note(
            [
                PresenceMark(
                    event: .joined, isPrivate: false, time: 1, topic: [65], key: [66], ref: [67], meta: meta)
            ], time: 1)
        try stage.keep(stage.read([["3", .text(Array(secret.utf8))], ["4", "c"]], of: table))
        try stage.commit([.insert(table, ["2", "b"])])
        let hex = secret.utf8.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        let log = HistoryLog(directory: stage.storage, masking: Masking())
        let lines = try log.export()
        let masked = String(decoding: lines.joined(), as: UTF8.self)
        #expect(!masked.contains(secret) && !masked.contains(hex))
        #expect(masked.contains(#""id":"2""#))
        let whole = String(decoding: try stage.log.export().joined(), as: UTF8.self)
        #expect(whole.contains(secret) && whole.ranges(of: hex).count == 4)
        // The remaining lines make a log that still has the attendance of clients.
        let copy = try imported(lines)
        #expect(try copy.offsets(HistoryQuery()) == [0, 1])
        let name = TableName(schema: "public", name: "notes")
        var rows: [String: String?] = [:]
        try TableAsOf(copy, name, HistoryQuery(), atMost: 10).visit { rows[$0.key] = $0.texts[1] }
        #expect(rows.count == 4 && rows["4"]??.hasPrefix("***") == true && rows["3"]??.hasPrefix("***") == true)
        var notes: [LedgerNote] = []
        try copy.ledger(LedgerQuery()) { notes.append($0.note) }
        #expect(notes.map(\.event) == [.joined] && String(decoding: notes[0].bindings, as: UTF8.self).contains("***"))
    }

    @Test func `masks values and says so in their place`() throws {
        let stage = try HistoryStage()
        try stage.commit([.insert(notes, ["1", "secret", .null]), .update(notes, ["1", "secret", "secret"])])
        let text = String(
            decoding: try stage.log.hiding("notes.body", "email").export().joined(), as: UTF8.self)
        #expect(!text.contains("secret"))
        #expect(text.contains(#""body":"*** "#) && text.contains(#"","email":null"#))
    }
}
