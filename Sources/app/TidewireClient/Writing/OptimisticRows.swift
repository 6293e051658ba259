/// Rows from the server together with local rows that the server does not have yet. A local row is shown immediately,
/// under a temporary id. When the server's answer or the row's change arrives, the row gets its final id and stays one
/// entry. If the write fails, the row disappears.
///
/// An origin connects a local row with its change: a value that the app writes into a column of its choice, or the
/// row's id if the app chooses it. The id of the author is not suitable: it would hide changes from the user's other
/// devices.
public struct OptimisticRows<Row: LiveRow>: Sendable {
    /// Value that connects a local row with its change.
    public typealias Origin = String

    private struct Pending: Sendable {
        let origin: Origin
        let row: Row
        /// True if a change of the row has arrived from the server since the write.
        var isHeard = false
    }

    /// Rows as the server sent them, by id. A pending row is shown in place of the row with the same id.
    private var confirmed: [Row.ID: Row] = [:]
    /// Numbers that give the order of the rows, by the row's id. A row that became known later has a larger number.
    private var places: [Row.ID: Int] = [:]
    private var nextPlace = 0
    /// Written rows that the server has neither confirmed nor refused.
    private var pending: [Pending] = []
    /// Ids of rows that were deleted while some write was pending. A late answer to the write may still contain them.
    private var gone: Set<Row.ID> = []
    private let origin: @Sendable (Row) -> Origin?

    /// Creates an empty collection of rows.
    ///
    /// - Parameter origin: returns the origin of the write that created a row, from a column of the row; nil if the row
    ///   has none.
    public init(origin: @escaping @Sendable (Row) -> Origin?) { self.origin = origin }

    /// All rows, in the order in which they became known.
    ///
    /// - Complexity: O(*n* log *n*), where *n* is the number of rows.
    public var all: [Row] { places.sorted { $0.value < $1.value }.compactMap { self[$0.key] } }
    /// Origins of writes that the server has neither confirmed nor refused.
    ///
    /// - Complexity: O(*n*), where *n* is the number of pending writes.
    public var pendingOrigins: Set<Origin> { Set(pending.map(\.origin)) }
    /// Row with this id as it is shown; nil if there is none.
    ///
    /// - Complexity: O(*n*), where *n* is the number of pending writes.
    public subscript(id: Row.ID) -> Row? { pending.last { $0.row.id == id }?.row ?? confirmed[id] }

    /// Shows a row immediately. Its change from the server is recognized by the origin.
    public mutating func write(_ row: Row, origin: Origin) {
        pending.removeAll { $0.origin == origin }
        pending.append(Pending(origin: origin, row: row))
        place(row.id)
    }

    /// Records the row with which the server answered a write. If a change of the row has already arrived, the change
    /// counts, because it may be newer.
    public mutating func confirmWrite(origin: Origin, as row: Row) {
        guard let own = settle(origin, at: row.id) else { return }
        let isHeard = own.row.id == row.id ? own.isHeard : confirmed[row.id] != nil
        if !isHeard, !gone.contains(row.id) { confirmed[row.id] = row }
        tidy([own.row.id, row.id])
    }

    /// Records that the server accepted a write but did not return the row. The written row then counts as stored. An
    /// unknown origin has no effect.
    public mutating func confirmWrite(origin: Origin) {
        guard let own = pending.last(where: { $0.origin == origin }) else { return }
        confirmWrite(origin: origin, as: own.row)
    }

    /// Undoes a failed write. Changes of the row that arrived from the server remain.
    public mutating func revertWrite(origin: Origin) {
        let failed = pending.filter { $0.origin == origin }
        pending.removeAll { $0.origin == origin }
        tidy(failed.map(\.row.id))
    }

    /// Applies a change from the server.
    public mutating func apply(_ change: LiveChange<Row>) {
        switch change {
        case .inserted(let row), .updated(let row, _):
            confirmed[row.id] = row
            gone.remove(row.id)
            place(row.id)
            for index in pending.indices where pending[index].row.id == row.id { pending[index].isHeard = true }
            if let name = origin(row) { _ = settle(name, at: row.id) }
        case .deleted(let id, _), .left(let id, _):
            // The row existed and is deleted now, so its pending writes are void.
            if confirmed.removeValue(forKey: id) != nil { pending.removeAll { $0.row.id == id } }
            if !pending.isEmpty { gone.insert(id) }
        }
        tidy([change.id])
    }

    /// Replaces all rows from the server. Local rows that the server does not have yet remain.
    public mutating func replaceAll(with fetched: [Row]) {
        confirmed = [:]
        for row in fetched { apply(.inserted(row)) }
        tidy(Array(places.keys))
    }

    /// Ends the pending write with this origin. Its row gets the final id and keeps its place in the order. Returns the
    /// write; nil if there is none.
    private mutating func settle(_ origin: Origin, at id: Row.ID) -> Pending? {
        guard let index = pending.firstIndex(where: { $0.origin == origin }) else { return nil }
        let own = pending.remove(at: index)
        if own.row.id != id, let place = places.removeValue(forKey: own.row.id) { places[id] = place }
        return own
    }

    private mutating func place(_ id: Row.ID) {
        guard places[id] == nil else { return }
        places[id] = nextPlace
        nextPlace += 1
    }

    /// Removes the order numbers of those of these rows that no longer exist.
    private mutating func tidy(_ ids: [Row.ID]) {
        for id in ids where self[id] == nil { places[id] = nil }
        if pending.isEmpty { gone = [] }
    }
}

/// Counts of keyed items by group. An item counts once, even if it arrives several times or out of order.
public struct KeyedCounts<Group: Hashable & Sendable, Key: Hashable & Sendable>: Sendable {
    private var groups: [Key: Group] = [:]
    /// Number of items by group, for groups that have items.
    public private(set) var counts: [Group: Int] = [:]

    /// Creates counts without any item.
    public init() {}

    /// Number of items in a group.
    public subscript(group: Group) -> Int { counts[group] ?? 0 }
    /// True if there is an item with this key.
    public func contains(_ key: Key) -> Bool { groups[key] != nil }

    /// Inserts an item into a group. If the item is in another group, moves it.
    public mutating func insert(_ key: Key, in group: Group) {
        remove(key)
        groups[key] = group
        counts[group, default: 0] += 1
    }

    /// Removes an item from its group. Does nothing if there is no such item.
    public mutating func remove(_ key: Key) {
        guard let group = groups.removeValue(forKey: key), let count = counts[group] else { return }
        counts[group] = count > 1 ? count - 1 : nil
    }

    /// Removes all items.
    public mutating func removeAll() { (groups, counts) = ([:], [:]) }
}

/// Keys that exist or not, such as likes of posts, counted by group. The user's own changes show immediately. In the
/// end the keys are those of the server, whatever the order and number of messages.
public struct OptimisticKeys<Group: Hashable & Sendable, Key: Hashable & Sendable>: Sendable {
    private struct Wish: Sendable {
        var isThere: Bool
        /// True if the server has accepted the write.
        var isAnswered = false
        /// True if the key's change has arrived from the server since the write.
        var isHeard = false
    }

    private var confirmed = KeyedCounts<Group, Key>()
    /// Changes by the user that the server has not confirmed, by key.
    private var wishes: [Key: Wish] = [:]
    private let group: @Sendable (Key) -> Group

    /// Creates an empty set of keys.
    ///
    /// - Parameter group: returns the group of a key.
    public init(group: @escaping @Sendable (Key) -> Group) { self.group = group }

    /// True if the key exists, counting the user's own unconfirmed changes.
    public func contains(_ key: Key) -> Bool { wishes[key]?.isThere ?? confirmed.contains(key) }

    /// Returns the number of keys in a group, counting the user's own unconfirmed changes.
    ///
    /// - Complexity: O(*n*), where *n* is the number of the user's changes that the server has not confirmed.
    public func count(in group: Group) -> Int {
        wishes.reduce(confirmed[group]) { count, wish in
            guard self.group(wish.key) == group, wish.value.isThere != confirmed.contains(wish.key) else {
                return count
            }
            return wish.value.isThere ? count + 1 : count - 1
        }
    }

    /// Shows a change by the user immediately.
    ///
    /// - Parameters:
    ///   - key: key that the user inserts or removes.
    ///   - isThere: true if the key exists after the change.
    public mutating func write(_ key: Key, isThere: Bool) { wishes[key] = Wish(isThere: isThere) }

    /// Records that the server has accepted all writes of the key.
    public mutating func confirmWrite(_ key: Key) {
        wishes[key]?.isAnswered = true
        if wishes[key]?.isHeard == true { wishes[key] = nil }
    }

    /// Undoes the user's change. The key is shown as the server has it.
    public mutating func revertWrite(_ key: Key) { wishes[key] = nil }

    /// Applies a change from the server.
    ///
    /// - Parameters:
    ///   - key: key that was inserted or removed.
    ///   - isThere: true if the key exists after the change.
    public mutating func apply(_ key: Key, isThere: Bool) {
        if isThere { confirmed.insert(key, in: group(key)) } else { confirmed.remove(key) }
        wishes[key]?.isHeard = true
        if wishes[key]?.isAnswered == true { wishes[key] = nil }
    }

    /// Replaces all keys by those that exist on the server.
    public mutating func replaceAll(with keys: some Sequence<Key>) {
        confirmed.removeAll()
        for key in keys { confirmed.insert(key, in: group(key)) }
        for key in Array(wishes.keys) {
            wishes[key]?.isHeard = true
            if wishes[key]?.isAnswered == true { wishes[key] = nil }
        }
    }
}
