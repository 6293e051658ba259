import Change

/// Row of any of the model's tables; all tables have the same columns.
struct ModelRow: Hashable, CustomStringConvertible {
    var id: Int
    var owner: String
    var room: Int
    var body: String
    /// Number that is unique to each version of any row, so that it identifies a change.
    var version: Int

    var description: String { "(\(id) \(owner) room \(room) v\(version))" }
}

/// Rows of a table, by their keys.
struct ModelRows {
    /// Rows in ascending order of their keys.
    private(set) var all: [ModelRow] = []

    private func place(of id: Int) -> Int {
        var (low, high) = (0, all.count)
        while low < high {
            let middle = (low + high) / 2
            if all[middle].id < id { low = middle + 1 } else { high = middle }
        }
        return low
    }

    mutating func put(_ row: ModelRow) {
        let place = place(of: row.id)
        if place < all.count, all[place].id == row.id { all[place] = row } else { all.insert(row, at: place) }
    }

    mutating func remove(_ id: Int) {
        let place = place(of: id)
        if place < all.count, all[place].id == id { all.remove(at: place) }
    }
}

enum ModelTable: UInt32, CaseIterable {
    /// Table whose policy refers to claims and columns only.
    case notes = 20_001
    /// Table whose policy asks for membership in the row's room.
    case items
    /// Table whose policy only PostgreSQL decides.
    case judged
    /// Table without row level security.
    case plain
    /// Members of rooms; no client subscribes to this table.
    case members
    /// Messages from the database to topics: a row's owner is its topic.
    case messages

    var name: String { "\(self)" }
    /// Tables that the hub looks up in the catalog.
    static let ofRows: [ModelTable] = [.notes, .items, .judged, .plain, .members]
    static let subscribed: [ModelTable] = [.notes, .items, .judged, .plain]
    /// Tables whose rows are visible without any membership.
    static let unguarded: [ModelTable] = [.notes, .judged, .plain]
}

enum ModelOperation: String { case insert = "INSERT", update = "UPDATE", delete = "DELETE", truncate = "TRUNCATE" }

struct ModelChange: CustomStringConvertible {
    enum Kind {
        case insert(ModelRow)
        case update(from: ModelRow, to: ModelRow)
        case delete(ModelRow)
        case truncate
    }

    var table: ModelTable
    var kind: Kind

    var operation: ModelOperation {
        switch kind {
        case .insert: .insert
        case .update: .update
        case .delete: .delete
        case .truncate: .truncate
        }
    }

    var old: ModelRow? {
        switch kind {
        case .insert, .truncate: nil
        case .update(let row, _), .delete(let row): row
        }
    }

    var new: ModelRow? {
        switch kind {
        case .insert(let row), .update(_, let row): row
        case .delete, .truncate: nil
        }
    }

    var description: String {
        "\(operation.rawValue) \(table) \(old.map { "\($0) → " } ?? "")\(new.map { "\($0)" } ?? "")"
    }
}

/// Catalog contents that can change.
struct ModelRules: Hashable {
    /// True if everybody may see the rows of room 0 in `notes`.
    var sharesRoomZero = false
    /// Number of additional columns by table; no row has values in them.
    var extras: [UInt32: Int] = [:]
    /// Tables whose old images contain their keys only.
    var namedByKey: Set<UInt32> = []

    func extras(of table: ModelTable) -> Int { extras[table.rawValue] ?? 0 }
    func isNamedByKey(_ table: ModelTable) -> Bool { namedByKey.contains(table.rawValue) }
}

/// Transaction as the database committed it.
struct ModelCommit {
    /// Number in the order of commits, from 1 on.
    var number: Int
    var xid: UInt32
    var lsn: LSN
    var end: LSN
    /// Microseconds since 1970.
    var time: Int64
    /// Time from which other sessions' snapshots show the commit: a moment after the stream sent it.
    var visibleFrom: UInt64
    var changes: [ModelChange]
    /// True if the commit changed definitions.
    var defines = false
    /// True if a publication existed at the commit.
    var isPublished = true
    /// Rules after the transaction.
    var rules: ModelRules
    var members: [String: [Int: Int]]
}

/// Database of the model: the commits in order, and the rows that each person may see. It shares no code with the hub.
final class ModelDatabase {
    private(set) var commits: [ModelCommit] = []
    private(set) var rows: [ModelTable: ModelRows] = [:]
    private(set) var rules = ModelRules()
    /// Number of rows that make a person a member of a room.
    private(set) var members: [String: [Int: Int]] = [:]
    /// True if a publication of the tables exists.
    var isPublished = true
    private var lastVersion = 0
    private var lastID = 0
    /// Last messages that were sent to topics and not deleted.
    private var messages: [ModelRow] = []
    private var lastXID: UInt32 = 700
    private var end = LSN(0x100_0000)

    static let firstLSN = LSN(0x100_0000)
    static let people = ["ana", "ben", "cem"]
    static let rooms = 0...3

    var walEnd: LSN { end }
    var lastCommit: Int { commits.count }
    var nextXID: UInt32 { lastXID + 1 }

    /// Returns the number of the last commit before a place.
    func lastCommit(endingBy end: LSN) -> Int {
        var (low, high) = (0, commits.count)
        while low < high {
            let middle = (low + high) / 2
            if commits[middle].end <= end { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Transaction ids taken before those of transactions that committed earlier.
    private var open: [UInt32] = []

    // MARK: Transactions

    func begin() -> Transaction { Transaction(rows: rows, members: members, rules: rules) }

    struct Transaction {
        var rows: [ModelTable: ModelRows]
        var members: [String: [Int: Int]]
        var rules: ModelRules
        var changes: [ModelChange] = []
        var defines = false
    }

    func insert(_ table: ModelTable, owner: String, room: Int, body: String, in transaction: inout Transaction) {
        lastID += 1
        lastVersion += 1
        let row = ModelRow(id: lastID, owner: owner, room: room, body: body, version: lastVersion)
        transaction.rows[table, default: ModelRows()].put(row)
        note(table, .insert(row), in: &transaction)
    }

    func update(
        _ row: ModelRow, of table: ModelTable, in transaction: inout Transaction, _ change: (inout ModelRow) -> Void
    ) {
        lastVersion += 1
        var new = row
        change(&new)
        new.version = lastVersion
        if new.id != row.id { transaction.rows[table]?.remove(row.id) }
        transaction.rows[table, default: ModelRows()].put(new)
        note(table, .update(from: row, to: new), in: &transaction)
    }

    func delete(_ row: ModelRow, of table: ModelTable, in transaction: inout Transaction) {
        transaction.rows[table]?.remove(row.id)
        note(table, .delete(row), in: &transaction)
    }

    /// Removes all rows of a table without naming them.
    func truncate(_ table: ModelTable, in transaction: inout Transaction) {
        transaction.rows[table] = ModelRows()
        if table == .members { transaction.members = [:] }
        transaction.changes.append(ModelChange(table: table, kind: .truncate))
    }

    /// Emits a message to a topic. It is no row that anybody reads; `takeBackMessage` deletes it.
    func say(to topic: String, in transaction: inout Transaction) {
        lastID += 1
        lastVersion += 1
        let row = ModelRow(id: lastID, owner: topic, room: 0, body: "", version: lastVersion)
        note(.messages, .insert(row), in: &transaction)
        messages.append(row)
        if messages.count > Self.messagesKept { messages.removeFirst() }
    }

    /// Deletes one of the last messages.
    func takeBackMessage(_ random: inout some RandomNumberGenerator, in transaction: inout Transaction) {
        guard let place = messages.indices.randomElement(using: &random) else { return }
        note(.messages, .delete(messages.remove(at: place)), in: &transaction)
    }

    /// Number of the last messages of which one may be deleted.
    private static let messagesKept = 30

    func freshID() -> Int {
        lastID += 1
        return lastID
    }

    private func note(_ table: ModelTable, _ kind: ModelChange.Kind, in transaction: inout Transaction) {
        let change = ModelChange(table: table, kind: kind)
        transaction.changes.append(change)
        guard table == .members else { return }
        if let old = change.old { transaction.members[old.owner, default: [:]][old.room, default: 0] -= 1 }
        if let new = change.new { transaction.members[new.owner, default: [:]][new.room, default: 0] += 1 }
    }

    /// Takes a transaction id for a later commit.
    func takeXID() -> UInt32 {
        lastXID += 1
        open.append(lastXID)
        return lastXID
    }

    func commit(_ transaction: Transaction, as xid: UInt32, at time: Int64, visibleFrom: UInt64) {
        open.removeAll { $0 == xid }
        rows = transaction.rows
        members = transaction.members
        rules = transaction.rules
        let lsn = LSN(end.rawValue + 0x28)
        end = LSN(lsn.rawValue + 0x100 + UInt64(transaction.changes.count) * 0x40)
        commits.append(
            ModelCommit(
                number: commits.count + 1, xid: xid, lsn: lsn, end: end, time: time, visibleFrom: visibleFrom,
                changes: transaction.changes, defines: transaction.defines, isPublished: isPublished, rules: rules,
                members: members))
    }

    // MARK: Snapshots

    /// Returns the snapshot at this time in the form of `pg_current_snapshot`, and the newest visible commit.
    ///
    /// Commits become visible in their order here. A real server may show a later one first, but readers of the log ask
    /// about such a commit only by its number.
    func snapshot(at now: UInt64) -> (text: String, last: ModelCommit?) {
        let visible = commits.lastIndex { $0.visibleFrom <= now }
        // Transactions older than this have ended.
        let first = UInt32(max(1, Int(lastXID) - 400))
        let late = commits[(visible.map { $0 + 1 } ?? 0)...].map(\.xid)
        let running = (open + late).filter { $0 >= first }.sorted()
        let lowest = running.first ?? lastXID + 1
        return (
            "\(lowest):\(lastXID + 1):\(running.map(String.init).joined(separator: ","))", visible.map { commits[$0] }
        )
    }

    // MARK: Visibility of rows

    static func sees(
        _ person: String, _ row: ModelRow, of table: ModelTable, _ rules: ModelRules, _ members: [String: [Int: Int]]
    ) -> Bool {
        switch table {
        case .notes: row.owner == person || rules.sharesRoomZero && row.room == 0
        case .items: (members[person]?[row.room] ?? 0) > 0
        case .judged: decides(person, owner: row.owner, version: row.version)
        case .plain: true
        case .members, .messages: false
        }
    }

    /// Decides the policy that the hub does not understand.
    static func decides(_ person: String, owner: String, version: Int) -> Bool {
        owner == person || version % 3 == 0
    }
}
