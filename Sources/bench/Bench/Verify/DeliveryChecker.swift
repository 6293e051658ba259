import Postgres
import System

/// Checker of the verifier. It compares the notes that the clients made with the changes in the database's journal.
struct DeliveryChecker {
    /// Maximum nanoseconds for which a note waits until its change appears in the journal. After that, the change is
    /// reported as unknown.
    private static let patience: UInt64 = 15_000_000_000

    private(set) var journal: Journal
    private(set) var ledgers: [ClientLedger]
    /// Findings that no fault explains, with the index of the client if they concern one client.
    private(set) var findings: [(client: Int?, finding: Finding)] = []
    private let seats: [Int]
    /// Notes of each client that the checker has not evaluated yet.
    private var waiting: [[Notebook.Entry]]
    private let notebook: Notebook
    private var session: VerifySession
    private var clearedTo: Int64 = 0

    init(
        _ database: VerifyDatabase, journal: Journal, clients: [(kind: ClientLedger.Kind, seat: Int)],
        notebook: Notebook
    ) {
        session = VerifySession(database)
        self.journal = journal
        ledgers = clients.map { ClientLedger($0.kind) }
        seats = clients.map(\.seat)
        waiting = Array(repeating: [], count: clients.count)
        self.notebook = notebook
    }

    /// Reads new journal lines and notes, and evaluates the notes. Returns false if the database does not answer.
    @discardableResult
    mutating func round(_ causes: [ClientLedger.Cause]) -> Bool {
        for entry in notebook.takeEntries() { waiting[entry.client].append(entry) }
        findings += notebook.takeTroubles().map { (nil, $0) }
        let began = Clock.monotonicNanoseconds()
        guard let last = session.attempt(VerifySQL.lastCommit)?.first?[0].flatMap(Int64.init), readJournal() else {
            return false
        }
        for client in waiting.indices where !waiting[client].isEmpty { judge(client, began, last, causes) }
        return true
    }

    private mutating func readJournal() -> Bool {
        while true {
            guard let rows = session.attempt(VerifySQL.lines(after: journal.sequence)) else { return false }
            var lines = rows.values.compactMap(Self.line)
            let isFull = lines.count == VerifySQL.page
            // The last transaction of a full page may be incomplete. The next page has all of it.
            if isFull, let last = lines.last?.sequence { lines.removeAll { $0.sequence == last } }
            for line in lines { journal.add(line) }
            if !isFull { break }
        }
        if journal.sequence > clearedTo + 500 {
            _ = session.attempt("DELETE FROM verify.journal WHERE seq <= \(journal.sequence)")
            clearedTo = journal.sequence
        }
        return true
    }

    private static func line(_ row: [String?]) -> JournalLine? {
        guard let sequence = row[0].flatMap(Int64.init), let operation = row[1].flatMap(ChangeMark.Operation.init),
            let number = row[2].flatMap(Int64.init)
        else { return nil }
        return JournalLine(
            sequence: sequence, mark: ChangeMark(operation: operation, number: number), table: row[3] ?? "",
            shownTo: (row[4] ?? "").split(separator: " ").compactMap { Int($0) }, isPublished: row[5] == "t")
    }

    /// Evaluates the notes that a client made before `began`, the time at which the database was asked for its last
    /// commit (`last`). Later notes wait for the next round.
    private mutating func judge(_ client: Int, _ began: UInt64, _ last: Int64, _ causes: [ClientLedger.Cause]) {
        var taken = 0
        for entry in waiting[client] {
            guard entry.at < began else { break }
            if case .heard(let mark) = entry.note, journal.table(of: mark) == nil, entry.at + Self.patience > began {
                break
            }
            let found = ledgers[client].take(
                entry.note, at: entry.at, committed: last, causes: causes, journal: journal, seat: seats[client])
            findings += found.map { (client, $0) }
            taken += 1
        }
        waiting[client].removeFirst(taken)
    }

    /// Adds the missing changes of which the hub never told the clients. Call this when no more changes can arrive.
    mutating func finish() {
        for client in ledgers.indices {
            findings += ledgers[client].takeUntold().map { (client, $0) }
        }
    }

    /// Commits a row that all clients receive (a fence), and returns the number of the row's version.
    mutating func fence(_ number: Int64) throws -> Int64 {
        let rows = try session.insist(
            "INSERT INTO fences (id) VALUES (\(number)) ON CONFLICT (id) DO UPDATE SET n = 1 RETURNING v")
        guard let version = rows.first?[0].flatMap(Int64.init) else { throw BenchFailure("a fence has no version") }
        return version
    }

    /// Returns the indexes of the clients that have not yet received the fence with this version number.
    func behind(_ version: Int64) -> [Int] {
        ledgers.indices.filter { client in
            let roll = journal.rolls[seats[client]]
            let mark = ChangeMark(operation: .insert, number: version)
            let other = ChangeMark(operation: .update, number: version)
            guard let place = roll.place(of: mark) ?? roll.place(of: other) else { return true }
            return !ledgers[client].has(place)
        }
    }

    mutating func add(_ finding: Finding, client: Int? = nil) { findings.append((client, finding)) }
}
