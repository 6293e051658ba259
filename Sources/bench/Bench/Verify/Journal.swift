/// Change of a row as clients are told of it: the operation, and the number of the row's version, or the key of a
/// deleted row. No number comes twice.
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

/// Line of the database's own journal: a committed change and who may see it, according to PostgreSQL at the commit.
struct JournalLine: Sendable {
    /// Number of the line's transaction, in the order of commits.
    var sequence: Int64
    var mark: ChangeMark
    var table: String
    /// Numbers of the `Listener`s that may see the change.
    var shownTo: [Int]
    var isPublished: Bool
}

/// All changes that clients of one seat have to receive, in order.
struct SeatRoll: Sendable {
    struct Expected: Sendable {
        var sequence: Int64
        var mark: ChangeMark
    }

    /// Listeners whose verdict counts for this seat.
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

/// Committed changes, and for each seat the changes that it has to receive.
struct Journal: Sendable {
    private(set) var rolls: [SeatRoll]
    private(set) var lines = 0
    /// Last transaction that was read.
    private(set) var sequence: Int64 = 0
    private var tables: [ChangeMark: String] = [:]

    init(seats: [Set<Int>]) { rolls = seats.map(SeatRoll.init) }

    mutating func add(_ line: JournalLine) {
        lines += 1
        sequence = max(sequence, line.sequence)
        tables[line.mark] = line.table
        for seat in rolls.indices { rolls[seat].add(line) }
    }

    /// Returns the table of a change; nil if there was no such change.
    func table(of mark: ChangeMark) -> String? { tables[mark] }
}
