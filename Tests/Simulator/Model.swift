import Change

/// Row of any table of the model; all tables have the same columns.
struct ModelRow: Hashable, CustomStringConvertible {
    var id: Int
    var owner: String
    var room: Int
    var body: String
    /// Number that is unique to each version of any row. It identifies the change that wrote the version.
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
    /// Table whose policy only PostgreSQL can evaluate.
    case judged
    /// Table without row level security.
    case plain
    /// Members of rooms; no client subscribes to this table.
    case members
    /// Messages from the database to topics. The owner of a row is the message's topic.
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

/// Definitions in the catalog that can change.
struct ModelRules: Hashable {
    /// True if every person may see the rows of room 0 in `notes`.
    var sharesRoomZero = false
    /// Number of additional columns by table. No row has values in them.
    var extras: [UInt32: Int] = [:]
    /// Tables whose old images contain their keys only.
    var namedByKey: Set<UInt32> = []

    func extras(of table: ModelTable) -> Int { extras[table.rawValue] ?? 0 }
    func isNamedByKey(_ table: ModelTable) -> Bool { namedByKey.contains(table.rawValue) }
}

/// Transaction that the database has committed.
struct ModelCommit {
    /// Number in the order of commits, starting with 1.
    var number: Int
    var xid: UInt32
    var lsn: LSN
    var end: LSN
    /// Commit time in microseconds since 1970.
    var time: Int64
    /// Virtual time in nanoseconds from which snapshots of other sessions show the commit. This is a moment after the
    /// stream sends the commit.
    var visibleFrom: UInt64
    var changes: [ModelChange]
    /// True if the commit changed definitions in the catalog.
    var defines = false
    /// True if a publication existed at the commit.
    var isPublished = true
    /// Definitions after the transaction.
    var rules: ModelRules
    var members: [String: [Int: Int]]
}

/// Database of the model: its commits in order, and a decision which rows each person may see. It shares no code with
/// the hub.
final class ModelDatabase {
    private(set) var commits: [ModelCommit] = []
    private(set) var rows: [ModelTable: ModelRows] = [:]
    private(set) var rules = ModelRules()
    /// Number of rows in `members` for each person and room. A person with at least one is a member of the room.
    private(set) var members: [String: [Int: Int]] = [:]
    /// True if a publication of the tables exists.
    var isPublished = true
    private var lastVersion = 0
    private var lastID = 0
    /// Newest messages that were sent to topics and not deleted.
    private var messages: [ModelRow] = []
    private var lastXID: UInt32 = 700
    private var end = LSN(0x100_0000)

    static let firstLSN = LSN(0x100_0000)
    static let people = ["ana", "ben", "cem"]
    static let rooms = 0...3

    var walEnd: LSN { end }
    var lastCommit: Int { commits.count }
    var nextXID: UInt32 { lastXID + 1 }

    /// Returns the number of the last commit that ends at or before an LSN; 0 if there is none.
    func lastCommit(endingBy end: LSN) -> Int {
        var (low, high) = (0, commits.count)
        while low < high {
            let middle = (low + high) / 2
            if commits[middle].end <= end { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// Ids of running transactions that began before some committed transactions.
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

    /// Removes all rows of a table by a truncate, which does not name the rows.
    func truncate(_ table: ModelTable, in transaction: inout Transaction) {
        transaction.rows[table] = ModelRows()
        if table == .members { transaction.members = [:] }
        transaction.changes.append(ModelChange(table: table, kind: .truncate))
    }

    /// Sends a message to a topic. No client subscribes to the message's row; `takeBackMessage` may delete it.
    func say(to topic: String, in transaction: inout Transaction) {
        lastID += 1
        lastVersion += 1
        let row = ModelRow(id: lastID, owner: topic, room: 0, body: "", version: lastVersion)
        note(.messages, .insert(row), in: &transaction)
        messages.append(row)
        if messages.count > Self.messagesKept { messages.removeFirst() }
    }

    /// Deletes one of the newest messages.
    func takeBackMessage(_ random: inout some RandomNumberGenerator, in transaction: inout Transaction) {
        guard let place = messages.indices.randomElement(using: &random) else { return }
        note(.messages, .delete(messages.remove(at: place)), in: &transaction)
    }

    /// Number of newest messages that may still be deleted.
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

    /// Returns a new transaction id, for a transaction that commits later.
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
    /// In the model, commits become visible in their order. A real server may show a later one first, but readers of
    /// the log ask about such a commit only by its number.
    func snapshot(at now: UInt64) -> (text: String, last: ModelCommit?) {
        let visible = commits.lastIndex { $0.visibleFrom <= now }
        // Transactions older than this have certainly ended.
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

    /// Returns the decision of the policy that the hub cannot evaluate itself.
    static func decides(_ person: String, owner: String, version: Int) -> Bool {
        owner == person || version % 3 == 0
    }
}
