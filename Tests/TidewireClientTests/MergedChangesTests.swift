import Foundation
import TestSupport
import Testing
import TidewireClientTesting

@testable import TidewireClient

@Suite(.within(minutes: 5)) struct MergedChangesTests {
    private struct Entry: DatedRow, Hashable {
        static let table = "entries"
        let id: Int
        let title: String
        let updatedAt: Date?
        let deletedAt: Date?
    }

    /// Data of an app, to compare batches with changes that are applied one by one.
    private struct Shelf: Hashable {
        var rows: [Int: Entry] = [:]
        var versions: [Int: RowVersion] = [:]
        var unsent: Set<Int> = []

        func local(_ id: Int) -> LocalRow? {
            versions[id].map { LocalRow($0, hasUnsentWrite: unsent.contains(id)) }
        }

        mutating func store(_ row: Entry, at position: LogPosition?) {
            rows[row.id] = row
            versions[row.id] = RowVersion(updatedAt: row.updatedAt, deletedAt: row.deletedAt, position: position)
        }

        mutating func remove(_ id: Int) { (rows[id], versions[id]) = (nil, nil) }

        mutating func save(_ merged: MergedBatch<Entry>) {
            if merged.isEverything {
                let stays = Set(merged.rowsToStore.map(\.id)).union(merged.keptIDs).union(unsent)
                for id in rows.keys where !stays.contains(id) { remove(id) }
            }
            for row in merged.rowsToStore { store(row, at: merged.position) }
            for id in merged.idsToRemove { remove(id) }
        }
    }

    private func entry(_ chance: inout SeededRandom) -> Entry {
        let date: Date? = chance.pick([nil, 0, 1, 2, 3, 4, 5]).map { Date(timeIntervalSince1970: $0) }
        return Entry(
            id: Int.random(in: 0..<4, using: &chance), title: "\(Int.random(in: 0..<1000, using: &chance))",
            updatedAt: date, deletedAt: chance.pick([nil, nil, nil, Date(timeIntervalSince1970: 9)]))
    }

    /// Checks batches of any size: they must give the app the same data as its changes applied one by one.
    @Test(arguments: seeds(200)) func `a batch is decided as its changes would be one by one`(seed: Seed) throws {
        var chance = SeededRandom(seed: seed)
        let policy = LastWriteWins(deletion: chance.pick([.wins, .losesToUnsentWrite]))
        var (together, single) = (Shelf(), Shelf())
        for number in 1...20 {
            let position = LogPosition(epoch: "e", offset: UInt64(number))
            var batch = LiveBatch<Entry>()
            batch.position = position
            batch.changes = (0..<Int.random(in: 0..<6, using: &chance)).map { _ in
                let row = entry(&chance)
                return chance.pick([.inserted(row), .updated(row, was: nil), .deleted(row.id, was: nil)])
            }
            if chance.pick([true, false]) {
                let written = entry(&chance)
                together.store(written, at: together.versions[written.id]?.position)
                single.store(written, at: single.versions[written.id]?.position)
                together.unsent.insert(written.id)
                single.unsent.insert(written.id)
            }
            let merged = try batch.merged(by: policy, with: together.local)
            let named = merged.rowsToStore.map(\.id) + merged.idsToRemove + merged.keptIDs
            #expect(Set(named).count == named.count)
            together.save(merged)
            for change in batch.changes {
                var one = LiveBatch<Entry>()
                (one.position, one.changes) = (position, [change])
                single.save(try one.merged(by: policy, with: single.local))
            }
            #expect(together == single)
        }
    }

    /// Checks a complete set of rows: it replaces the rows that were sent, and keeps those that were not.
    @Test func `all rows there are leave what was not sent`() throws {
        var shelf = Shelf()
        let day = Date(timeIntervalSince1970: 1)
        for id in 1...3 { shelf.store(Entry(id: id, title: "old", updatedAt: day, deletedAt: nil), at: nil) }
        shelf.unsent = [3]
        var batch = LiveBatch<Entry>()
        batch.rows = [Entry(id: 1, title: "new", updatedAt: day, deletedAt: nil)]
        let merged = try batch.merged(by: LastWriteWins(), with: shelf.local)
        shelf.save(merged)
        #expect(shelf.rows.mapValues(\.title) == [1: "new", 3: "old"])
    }

    /// Checks a save that fails: a subscriber that resumes from the saved position must receive the changes again.
    @Test func `an error of the app's ends it, and nothing counts as saved`() async throws {
        struct DiskFull: Error {}
        let hub = MemoryHub()
        let tidewire = Tidewire(hub: hub, token: "ana", clock: ManualClock())
        #expect(tidewire.userID == nil)
        var shelf = Shelf()
        var saved: LogPosition?
        for isFull in [true, false] {
            let query = tidewire.live(Entry.self, after: saved, window: .immediate, snapshot: false)
            hub.insert("entries", ["id": 7, "title": "a", "updated_at": nil, "deleted_at": nil])
            do {
                try await query.apply(with: shelf.local) { merged in
                    if saved != nil, isFull, !merged.rowsToStore.isEmpty { throw DiskFull() }
                    shelf.save(merged)
                    saved = merged.position ?? saved
                    if saved != nil, isFull { hub.insert("entries", ["id": 8, "title": "b"]) }
                    if shelf.rows[8] != nil { throw CancellationError() }
                }
            } catch is DiskFull {
                #expect(isFull && shelf.rows[8] == nil)
            } catch is CancellationError {
                #expect(!isFull)
            }
        }
        #expect(shelf.rows[8]?.title == "b")
    }
}
