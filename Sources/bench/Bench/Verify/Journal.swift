/// A row change as clients tell it: what it did, and the number of the row's version or, of a deleted one, its key. No number
/// comes twice.
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

/// A line of the database's own journal: a committed change and who may see it, as PostgreSQL said at the commit.
struct JournalLine: Sendable {
    /// Of its transaction, in the order of commits.
    var sequence: Int64
    var mark: ChangeMark
    var table: String
    /// Numbers of `Listener`s.
    var shownTo: [Int]
    var isPublished: Bool
}

/// Everything that clients of one seat have to receive, in order.
struct SeatRoll: Sendable {
    struct Expected: Sendable {
        var sequence: Int64
        var mark: ChangeMark
    }

    /// Those of them whose verdict counts for this seat.
    let listeners: Set<Int>
    private(set) var expected: [Expected] = []
    private var places: [ChangeMark: Int] = [:]

    init(listeners: Set<Int>) { self.listeners = listeners }

    mutating func add(_ line: JournalLine) {
        guard line.isPublished, line.shownTo.contains(where: listeners.contains) else { return }
        places[line.mark] = expected.count
        expected.append(Expected(sequence: line.sequence, mark: line.mark))
    }

    func place(of mark: ChangeMark) -> Int? { places[mark] }
}

/// What was committed, and who has to receive which of it.
struct Journal: Sendable {
    private(set) var rolls: [SeatRoll]
    private(set) var lines = 0
    /// The last transaction that was read.
    private(set) var sequence: Int64 = 0
    private var tables: [ChangeMark: String] = [:]

    init(seats: [Set<Int>]) { rolls = seats.map(SeatRoll.init) }

    mutating func add(_ line: JournalLine) {
        lines += 1
        sequence = max(sequence, line.sequence)
        tables[line.mark] = line.table
        for seat in rolls.indices { rolls[seat].add(line) }
    }

    /// Nil for what never was.
    func table(of mark: ChangeMark) -> String? { tables[mark] }
}
