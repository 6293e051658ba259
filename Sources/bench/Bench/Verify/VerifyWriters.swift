import Synchronization
import System

/// Gate that keeps writers and faults from acting at certain times. Any number of them can be inside. While the gate is
/// closed, none can enter.
final class VerifyGate: Sendable {
    private struct State {
        var inside = 0
        var isClosed = false
    }

    private let state = Mutex(State())

    /// Waits until the gate is open, and runs `body` inside.
    func pass<Result>(_ body: () throws -> Result) rethrows -> Result {
        while !state.withLock({ state in
            if state.isClosed { return false }
            state.inside += 1
            return true
        }) {
            Pause.milliseconds(5)
        }
        defer { state.withLock { $0.inside -= 1 } }
        return try body()
    }

    /// Closes the gate and waits until no caller of `pass` is inside. Only one caller at a time may close the gate.
    func close() {
        state.withLock { $0.isClosed = true }
        while state.withLock({ $0.inside > 0 }) { Pause.milliseconds(5) }
    }

    func open() { state.withLock { $0.isClosed = false } }
}

/// Writer of random transactions: small and large ones, some rolled back, some rolled back in part. Each writer has its
/// own rows and changes a row at most once in a transaction.
struct VerifyWriter {
    private static let rowsOfTable = 30

    private var session: VerifySession
    private var chance: VerifyChance
    private var nextID: Int64
    private var rows: [String: [Int64]] = [:]
    /// Rows that the current transaction has changed. It may change each only once, because the journal evaluates rows
    /// as they are at the commit.
    private var touched: Set<Int64> = []
    private(set) var transactions = 0
    private(set) var failures = 0

    init(_ database: VerifyDatabase, seed: UInt64, number: Int) {
        session = VerifySession(database)
        chance = VerifyChance(seed, lane: 100 + UInt64(number))
        nextID = Int64(number) * 1_000_000_000
    }

    mutating func step() {
        let sql: String
        touched = []
        switch chance.number(1...100) {
        case 1: sql = large()
        case 2...6: sql = "BEGIN; \(changes()) ROLLBACK"
        case 7...14: sql = "BEGIN; \(changes()) SAVEPOINT a; \(changes()) ROLLBACK TO a; \(changes()) COMMIT"
        default: sql = "BEGIN; \(changes()) COMMIT"
        }
        // After a failure the writer does not know which of its rows exist. Updating or deleting a missing row has no
        // effect.
        if session.attempt(sql) == nil { failures += 1 } else { transactions += 1 }
    }

    mutating func pause(milliseconds: ClosedRange<Int>) { Pause.milliseconds(chance.number(milliseconds)) }

    private mutating func changes() -> String { (1...chance.number(1...3)).map { _ in change() }.joined() }

    private mutating func change() -> String {
        let table = chance.pick(VerifyTable.written)
        var mine = rows[table, default: []]
        defer { rows[table] = mine }
        if mine.count > 3, !chance.once(in: 2) {
            let place = chance.number(0...mine.count - 1)
            let id = mine[place]
            if touched.insert(id).inserted {
                if chance.number(1...10) > (mine.count > Self.rowsOfTable ? 2 : 7) {
                    mine.remove(at: place)
                    return "DELETE FROM \(table) WHERE id = \(id); "
                }
                return "UPDATE \(table) SET (owner, team, n, kind) = (SELECT \(values())) WHERE id = \(id); "
            }
        }
        nextID += 1
        mine.append(nextID)
        touched.insert(nextID)
        return "INSERT INTO \(table) (id, owner, team, n, kind) SELECT \(nextID), \(values()); "
    }

    private mutating func values() -> String {
        let owner = chance.once(in: 8) ? "NULL::uuid" : "'\(VerifyPerson.allCases[chance.number(0...3)].id)'::uuid"
        let number = chance.once(in: 8) ? "NULL::int" : String(chance.number(1...5))
        let kind = chance.pick(["'a'", "'b'", "'c'", "NULL"])
        return "\(owner), \(chance.number(1...4)), \(number), \(kind)::text"
    }

    /// Returns SQL for a transaction that inserts many rows. The writer does not change these rows later.
    private mutating func large() -> String {
        let table = chance.pick(VerifyTable.written)
        let (count, first) = (chance.number(50...200), nextID + 1)
        nextID += Int64(count)
        return """
            BEGIN; INSERT INTO \(table) (id, owner, team, n, kind)
            SELECT i, ('00000000-0000-4000-8000-00000000000' || 1 + i % 4)::uuid, 1 + i % 4, nullif(i % 6, 0), substr('abc', 1 + (i % 3)::int, 1)
            FROM generate_series(\(first)::bigint, \(nextID)) i; \(changes()) COMMIT
            """
    }
}
