import Bytes
import Change
import EventLog
import Synchronization
import System
import TestSupport
import Testing

@testable import History

/// Tests with random histories of two tables. One row of one table has values that occur nowhere else (the planted
/// values).
@Suite(.within(minutes: 10)) struct ForgettingTests {
    private static let people = Relation(
        oid: 7, schema: "app", name: "people", identity: .primaryKey,
        columns: [column("id", key: true), column("email"), column("body"), column("note")])
    private static let wholePeople = Relation(
        oid: 8, schema: "app", name: "members", identity: .full,
        columns: [column("org", 23, key: true, identity: true), column("id", key: true, identity: true)]
            + [column("email", identity: true)])
    private static let plant = "plant-7f3c"
    private static let key = "key-plant-7f3c"
    private static let time: Int64 = 1_795_694_400_000_000

    private struct Made {
        let storage: FaultyStorage
        let table: Relation
        var name: RowName {
            RowName(table.oid == 7 ? [ForgettingTests.key] : ["3", ForgettingTests.key])
        }
        var tableName: TableName { TableName(schema: table.schema, name: table.name) }
        var log: HistoryLog { HistoryLog(directory: storage, masking: .nothing) }
    }

    private func made(_ random: inout SeededRandom) throws -> Made {
        let stage = try HistoryStage(segmentBytes: UInt64.random(in: 900...5000, using: &random))
        let table = Bool.random(using: &random) ? Self.people : Self.wholePeople
        for step in 0..<Int.random(in: 3...40, using: &random) {
            switch Int.random(in: 0...9, using: &random) {
            case 0: try stage.gap(time: Int64(step))
            case 1: try stage.idle(time: Int64(step))
            case 2:
                let rows = (0..<3).map { _ in Self.row(table, step, Int.random(in: 0...2, using: &random) == 0, &random)
                }
                try stage.keep(stage.read(rows, of: table))
            default:
                let puts = (0..<Int.random(in: 1...6, using: &random)).map { _ in Self.put(table, step, &random) }
                try stage.commit(puts, xid: UInt32(step), partSize: Int.random(in: 1...4, using: &random))
            }
        }
        try stage.writer.flush()
        return Made(storage: stage.storage.copy(), table: table)
    }

    private static func row(
        _ table: Relation, _ step: Int, _ isPlanted: Bool, _ random: inout SeededRandom
    ) -> [RowValue] {
        let id = isPlanted ? key : "k\(Int.random(in: 0...3, using: &random))"
        func value() -> RowValue {
            let text = isPlanted ? plant : "v"
            return random.pick([.null, RowValue(stringLiteral: text + String(step)), RowValue(stringLiteral: text)])
        }
        var row: [RowValue] = table.oid == 7 ? [] : ["3"]
        row.append(RowValue(stringLiteral: id))
        for _ in row.count..<table.columns.count { row.append(value()) }
        return row
    }

    private static func put(_ table: Relation, _ step: Int, _ random: inout SeededRandom) -> Put {
        if Int.random(in: 0...3, using: &random) == 0 {
            return .insert(notes, [RowValue(stringLiteral: "\(step)"), RowValue(stringLiteral: "of \(step)"), "me@x"])
        }
        if Int.random(in: 0...20, using: &random) == 0 { return .truncate(table) }
        let isPlanted = Int.random(in: 0...2, using: &random) == 0
        func row(_ isPlanted: Bool) -> [RowValue] { Self.row(table, step, isPlanted, &random) }
        let image: OldImage = table.oid == 7 ? .key : .full
        func old(_ isPlanted: Bool) -> [RowValue] {
            let whole = row(isPlanted)
            return whole.indices.map { table.oid == 8 || $0 == 0 ? whole[$0] : .null }
        }
        switch Int.random(in: 0...5, using: &random) {
        case 0, 1: return .insert(table, row(isPlanted))
        case 2 where table.oid == 7: return .update(table, row(isPlanted))
        case 2, 3: return .update(table, row(isPlanted), old: old(isPlanted), image)
        // The row gets another key, or had another key before. Both images contain the planted value.
        case 4:
            let other = Bool.random(using: &random)
            var new = row(isPlanted)
            if isPlanted { new[table.keyColumns.count - 1] = other ? "was-planted" : RowValue(stringLiteral: key) }
            return .update(table, new, old: old(isPlanted), image)
        default: return .delete(table, old(isPlanted), image)
        }
    }

    private final class Known: Sendable {
        let relations = Mutex<[UInt64: RecordedRelation]>([:])
    }

    /// Returns log options that compute row keys as ingest does.
    private func options() -> EventLogOptions {
        var options = EventLogOptions(source: 99)
        options.preparesSegments = false
        options.segmentBytes = 4096
        options.keyScheme = RowKey.scheme
        let known = Known()
        options.keysOf = { kind, payload in
            if kind == .relation {
                guard let relation = try? RecordedRelation(stored: payload) else { return nil }
                known.relations.withLock { $0[relation.fingerprint] = relation }
                return []
            }
            if kind == .keptRows { return KeptRowsCodec.keys(of: payload) }
            guard kind == .transaction, var part = try? TransactionPart(payload) else { return [] }
            var keys = [RowKey.transaction(xid: part.xid)]
            while let change = try? part.next() {
                guard let relation = known.relations.withLock({ $0[change.relation] }) else { continue }
                keys.append(relation.tableKey)
                if change.operation == .truncate { keys.append(relation.unkeyed) }
                if let old = change.old { keys.append(relation.rowKey(inTuple: old.bytes)) }
                if let new = change.new { keys.append(relation.rowKey(inTuple: new.bytes)) }
            }
            return keys
        }
        return options
    }

    private func isPlanted(_ storage: FaultyStorage) throws -> Bool {
        // The key, too, contains the planted value.
        let needle = Array(Self.plant.utf8)
        return try storage.names().contains { name in
            let bytes = storage.bytes(of: name) ?? []
            return bytes.withUnsafeBufferPointer { bytes in
                bytes.indices.contains { at in
                    bytes[at] == needle[0] && at + needle.count <= bytes.count
                        && needle.indices.allSatisfy { bytes[at + $0] == needle[$0] }
                }
            }
        }
    }

    private func headers(_ storage: FaultyStorage) throws -> [EventLogEntry] {
        var reader = try EventLogReader(directory: storage)
        var all: [EventLogEntry] = []
        while try reader.next() { all.append(reader.entry) }
        return all
    }

    private func changes(_ log: HistoryLog) throws -> [RecordedChange] {
        try log.items(HistoryQuery()).compactMap(\.recorded)
    }

    /// Returns rows that were read from the database. `isOfRow` is true for a version of the planted row.
    private func kept(_ log: HistoryLog) throws -> [(isOfRow: Bool, row: KeptRows.Row)] {
        var all: [(Bool, KeptRows.Row)] = []
        var reader = try KeptRowsReader(log)
        while let (note, _) = try reader.next() {
            for row in note.rows {
                let values = row.isForgotten ? [] : try RowValue.row(row.image)
                all.append((values.contains(RowValue(stringLiteral: Self.key)), row))
            }
        }
        return all
    }

    private func isOfRow(_ change: RecordedChange) -> Bool {
        let value = RowValue(stringLiteral: Self.key)
        return change.new.contains(value) || change.old.contains(value)
    }

    private func forget(_ made: Made) throws -> Forgetting {
        let erasure = try EventLogErasure(made.storage, options: options())
        let plan = try Forgetting(of: made.name, in: made.tableName, made.log, at: Self.time)
        try erasure.perform(plan.patches)
        return plan
    }

    private func hasTable(_ made: Made) throws -> Bool {
        try made.log.relations().contains { $0.relation.oid == made.table.oid }
    }

    @Test(arguments: seeds(150)) func `nothing of the row is in any file, and everything else is what it was`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let made = try made(&random)
        guard try hasTable(made) else { return }
        let (before, headersBefore) = (try changes(made.log), try headers(made.storage))
        let keptBefore = try kept(made.log)
        let plan = try forget(made)
        #expect(plan.changes == before.count(where: isOfRow) + keptBefore.count(where: \.isOfRow))
        for (was, now) in zip(keptBefore, try kept(made.log)) {
            #expect(was.isOfRow ? now.row.isForgotten : now.row == was.row)
        }
        #expect(plan.forgotten == 0)
        #expect(plan.otherTables.isSubset(of: [TableName(schema: "public", name: "notes")]))
        #expect(try !isPlanted(made.storage))
        #expect(try headers(made.storage) == headersBefore)
        #expect(try EventLogVerifier.verify(made.storage).allSatisfy(\.problems.isEmpty))
        try compare(changes(made.log), with: before)
        #expect(try made.storage.names().allSatisfy { !$0.hasPrefix("erasure") })
        // Forgetting the same row twice has the same result as once.
        let again = try forget(made)
        #expect(again.changes == 0 && again.forgotten >= plan.changes)
        try compare(changes(made.log), with: before)
    }

    private func compare(_ after: [RecordedChange], with before: [RecordedChange]) throws {
        try #require(after.count == before.count)
        for (now, was) in zip(after, before) {
            #expect(now.offset == was.offset && now.operation == was.operation && now.transaction == was.transaction)
            #expect(now.oldImage == was.oldImage && now.relation?.table == was.relation?.table)
            if isOfRow(was) {
                #expect(now.forgotten?.date == "2026-11-26")
                #expect((now.new + now.old).allSatisfy { $0 == .unchanged })
            } else {
                #expect(now.forgotten == nil && now.new == was.new && now.old == was.old)
            }
        }
    }

    @Test(arguments: seeds(60)) func `the row says that it was forgotten, and others say what they said`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let made = try made(&random)
        guard try hasTable(made) else { return }
        let other = RowName(made.table.oid == 7 ? ["k1"] : ["3", "k1"])
        func versions(_ name: RowName) throws -> (changes: [RecordedChange], readings: [RecordedChange]) {
            var history = try RowHistory(made.log, made.tableName, name, HistoryQuery())
            var all: [RowVersion] = []
            while let item = try history.next() { if case .version(let version) = item { all.append(version) } }
            return (all.filter { !$0.wasRead }.map(\.change), all.filter(\.wasRead).map(\.change))
        }
        let (own, others) = (try versions(made.name).changes.filter(isOfRow), try versions(other).changes)
        _ = try forget(made)
        let (left, readings) = try versions(made.name)
        #expect(readings.allSatisfy { !isOfRow($0) })
        #expect(Set(left.filter { $0.forgotten != nil }.map(\.offset)).isSuperset(of: own.map(\.offset)))
        #expect(left.allSatisfy { !isOfRow($0) })
        let now = try versions(other).changes
        // A change that gave a row the forgotten key, or replaced that key, is forgotten, too.
        #expect(
            now.filter { $0.forgotten == nil }.map(\.new)
                == others.filter { !isOfRow($0) && $0.forgotten == nil }.map(\.new))
    }

    @Test(arguments: seeds(60)) func `an export has the marks, and an import makes the same of it`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let made = try made(&random)
        guard try hasTable(made) else { return }
        _ = try forget(made)
        let lines = try made.log.export()
        let copy = try imported(lines)
        #expect(try copy.export() == lines)
        #expect(try changes(copy).map(\.forgotten) == changes(made.log).map(\.forgotten))
    }

    /// Interrupts the forgetting at each write and each sync, by the end of the process or of the machine. Afterwards
    /// either all values are forgotten or none, and the log is undamaged.
    @Test(arguments: seeds(25)) func `an interrupted forgetting is finished by whoever opens the log, or never began`(
        seed: Seed
    ) throws {
        var random = SeededRandom(seed: seed)
        let made = try made(&random)
        guard try hasTable(made) else { return }
        let before = try changes(made.log)
        for place in 0..<60 {
            let storage = made.storage.copy()
            let hit = Made(storage: storage, table: made.table)
            let isSync = place % 2 == 0
            var hasEnded = false
            do {
                let erasure = try EventLogErasure(storage, options: options())
                let plan = try Forgetting(of: hit.name, in: hit.tableName, hit.log, at: Self.time)
                storage.setFaults { faults in
                    if isSync { faults.failSyncAfter = place / 2 } else { faults.failWriteAfter = place / 2 }
                    faults.tornBytes = Int.random(in: 0...400, using: &random)
                    faults.times = 1000
                }
                try erasure.perform(plan.patches)
            } catch is EventLogError {
                hasEnded = true
            }
            storage.setFaults { _ in }
            if Bool.random(using: &random) { storage.powerCut(&random) } else { storage.processDied() }
            do {
                let writer = try EventLogWriter(directory: storage, options: options())
                #expect(!writer.recovery.hasUnfinishedErasure)
            }
            #expect(try storage.names().allSatisfy { !$0.hasPrefix("erasure") })
            #expect(try EventLogVerifier.verify(storage).allSatisfy { !$0.isDamaged })
            let after = try changes(hit.log)
            if try !isPlanted(storage) {
                try compare(after, with: before)
            } else {
                #expect(hasEnded)
                #expect(after.allSatisfy { $0.forgotten == nil })
            }
            if !hasEnded { break }
        }
    }

    /// Checks two readers: one that has the old file open, and one that opens the new file where the other stopped.
    @Test func `a reader goes on across it`() throws {
        var random = SeededRandom(seed: 5)
        let made = try made(&random)
        let all = try headers(made.storage)
        var reader = try EventLogReader(directory: made.storage)
        var seen: [EventLogEntry] = []
        while seen.count < all.count / 2, try reader.next() { seen.append(reader.entry) }
        _ = try forget(made)
        while try reader.next() { seen.append(reader.entry) }
        #expect(seen == all)
    }

    @Test func `a log that is written is left alone`() throws {
        let stage = try HistoryStage()
        try stage.commit([.insert(notes, ["1", "a", "b"])])
        #expect(throws: EventLogError.self) { _ = try EventLogErasure(stage.storage, options: options()) }
        withExtendedLifetime(stage) {}
    }

    @Test func `rows of a table at a place leave out who was forgotten, and say so`() throws {
        let stage = try HistoryStage()
        try stage.commit([.insert(notes, ["1", "a", "b"]), .insert(notes, ["2", "c", "d"])])
        try stage.commit([.update(notes, ["1", "e", "f"])])
        let storage = stage.storage.copy()
        let log = HistoryLog(directory: storage, masking: .nothing)
        do {
            let erasure = try EventLogErasure(storage, options: options())
            let name = TableName(schema: "public", name: "notes")
            try erasure.perform(Forgetting(of: RowName(["1"]), in: name, log, at: Self.time).patches)
        }
        let rows = try TableAsOf(log, TableName(schema: "public", name: "notes"), HistoryQuery(), atMost: 10)
        #expect(rows.count == 1 && rows.forgottenCount == 1)
    }

    /// Checks that the partitions of the messages table count as that table.
    @Test func `a message is forgotten by the table's name`() throws {
        let partition = Relation(
            oid: 20, schema: "realtime", name: "messages_2026_11_26", identity: .primaryKey,
            columns: [column("id", 2950, key: true), column("payload"), column("inserted_at", 1114, key: true)])
        let stage = try HistoryStage()
        let id = "7f3c2b1e-0c5d-4f6e-8a52-000000000001"
        try stage.commit([.insert(partition, [RowValue(stringLiteral: id), "plant-7f3c", "2026-11-26 00:00:00"])])
        let storage = stage.storage.copy()
        let log = HistoryLog(directory: storage, masking: .nothing)
        let erasure = try EventLogErasure(storage, options: options())
        let plan = try Forgetting(
            of: RowName(["id=" + id.uppercased()]), in: TableName(schema: "realtime", name: "messages"), log,
            at: Self.time)
        try erasure.perform(plan.patches)
        #expect(plan.changes == 1)
        #expect(try !isPlanted(storage))
    }
}
