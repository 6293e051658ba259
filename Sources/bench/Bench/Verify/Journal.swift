/// Identity of a row change: the operation, with the number of the row's new version or with the key of the deleted
/// row. No two changes have the same mark.
struct ChangeMark: Hashable, Sendable, CustomStringConvertible {
    enum Operation: String, Sendable {
        case insert = "INSERT"
        case update = "UPDATE"
        case delete = "DELETE"
    }

    var operation: Operation
    var number: Int64

    var description: String { "\(operation.rawValue) \(number)" }
}

/// Line of the database's journal: a committed row change, and who could see the row at the commit, as PostgreSQL
/// decided it.
struct JournalLine: Sendable {
    /// Number of the transaction, in the order of commits.
    var sequence: Int64
    var mark: ChangeMark
    var table: String
    /// Numbers of the `Listener`s that may see the change.
    var shownTo: [Int]
    var isPublished: Bool
}

/// Changes that the clients of one `VerifySeat` have to receive, in the order of commits.
struct ExpectedChanges: Sendable {
    struct Expected: Sendable {
        var sequence: Int64
        var mark: ChangeMark
    }

    /// Numbers of this seat's `Listener`s. The seat's clients receive a change if any of them may see it.
    let listeners: Set<Int>
    private(set) var expected: [Expected] = []
    private var places: [ChangeMark: Int] = [:]

    init(listeners: Set<Int>) { self.listeners = listeners }

    mutating func add(_ line: JournalLine) {
        guard line.isPublished, line.shownTo.contains(where: listeners.contains) else { return }
        places[line.mark] = expected.count
        expected.append(Expected(sequence: line.sequence, mark: line.mark))
    }

    /// Returns the index of a change in `expected`; nil if the seat's clients do not have to receive it.
    func place(of mark: ChangeMark) -> Int? { places[mark] }
}

/// Committed changes, and for each `VerifySeat` the changes that its clients have to receive.
struct Journal: Sendable {
    private(set) var rolls: [ExpectedChanges]
    private(set) var lines = 0
    /// Number of the last transaction that was read from the database.
    private(set) var sequence: Int64 = 0
    private var tables: [ChangeMark: String] = [:]

    init(seats: [Set<Int>]) { rolls = seats.map(ExpectedChanges.init) }

    mutating func add(_ line: JournalLine) {
        lines += 1
        sequence = max(sequence, line.sequence)
        tables[line.mark] = line.table
        for seat in rolls.indices { rolls[seat].add(line) }
    }

    /// Returns the name of the changed table; nil if the journal has no such change.
    func table(of mark: ChangeMark) -> String? { tables[mark] }
}
