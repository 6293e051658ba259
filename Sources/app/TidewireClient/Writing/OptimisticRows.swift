/// Rows with those that are not on the server yet: shown at once under a temporary id, one entry at the end whichever comes
/// first, the server's answer or the change itself, and gone again if it fails.
///
/// What belongs together is known by an origin: a value that the app writes into a column of its choice, or the row's id where
/// the app chooses that. Not by who wrote it, which would also hide the same person's other device.
public struct OptimisticRows<Row: LiveRow>: Sendable {
    public typealias Origin = String

    private struct Pending: Sendable {
        let origin: Origin
        let row: Row
        /// The server has told of the row since it was written.
        var isHeard = false
    }

    /// What the server has said; what is shown is this with what is pending over it.
    private var confirmed: [Row.ID: Row] = [:]
    /// The later one came to be known, the larger.
    private var places: [Row.ID: Int] = [:]
    private var nextPlace = 0
    private var pending: [Pending] = []
    /// Deleted while something is pending, whose answer may speak of it as if it were there.
    private var gone: Set<Row.ID> = []
    private let origin: @Sendable (Row) -> Origin?

    /// - Parameter origin: what the row's column says of where it comes from.
    public init(origin: @escaping @Sendable (Row) -> Origin?) { self.origin = origin }

    /// In the order in which they came to be known.
    public var all: [Row] { places.sorted { $0.value < $1.value }.compactMap { self[$0.key] } }
    public var pendingOrigins: Set<Origin> { Set(pending.map(\.origin)) }
    public subscript(id: Row.ID) -> Row? { pending.last { $0.row.id == id }?.row ?? confirmed[id] }

    /// Shown at once; what the server says of it has this origin.
    public mutating func write(_ row: Row, origin: Origin) {
        pending.removeAll { $0.origin == origin }
        pending.append(Pending(origin: origin, row: row))
        place(row.id)
    }

    /// The server's answer to it. What has been told of the row meanwhile counts more: it may be newer.
    public mutating func succeeded(_ origin: Origin, _ row: Row) {
        guard let own = settle(origin, at: row.id) else { return }
        let isHeard = own.row.id == row.id ? own.isHeard : confirmed[row.id] != nil
        if !isHeard, !gone.contains(row.id) { confirmed[row.id] = row }
        tidy([own.row.id, row.id])
    }

    /// The server has taken it, and does not say how it is stored: as it was written. An origin that nothing has is none of
    /// these rows, and changes nothing.
    public mutating func succeeded(_ origin: Origin) {
        guard let own = pending.last(where: { $0.origin == origin }) else { return }
        succeeded(origin, own.row)
    }

    /// It is as it was. Whatever somebody else has made of the row meanwhile stays.
    public mutating func failed(_ origin: Origin) {
        let failed = pending.filter { $0.origin == origin }
        pending.removeAll { $0.origin == origin }
        tidy(failed.map(\.row.id))
    }

    public mutating func hear(_ change: Change<Row>) {
        switch change {
        case .inserted(let row), .updated(let row, _):
            confirmed[row.id] = row
            gone.remove(row.id)
            place(row.id)
            for index in pending.indices where pending[index].row.id == row.id { pending[index].isHeard = true }
            if let name = origin(row) { _ = settle(name, at: row.id) }
        case .deleted(let id, _), .left(let id, _):
            // Of what was there and is gone nothing is to be written any more.
            if confirmed.removeValue(forKey: id) != nil { pending.removeAll { $0.row.id == id } }
            if !pending.isEmpty { gone.insert(id) }
        }
        tidy([change.id])
    }

    /// Everything there is; one's own that are not there yet stay.
    public mutating func replaceAll(_ fetched: [Row]) {
        confirmed = [:]
        for row in fetched { hear(.inserted(row)) }
        tidy(Array(places.keys))
    }

    /// It is known under this id from now on, in the place where it was shown.
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

    /// Those that are not there any more have no place.
    private mutating func tidy(_ ids: [Row.ID]) {
        for id in ids where self[id] == nil { places[id] = nil }
        if pending.isEmpty { gone = [] }
    }
}

/// Counts by group, of things that are known by their key: what is told twice, or in another order, counts once.
public struct KeyedCounts<Group: Hashable & Sendable, Key: Hashable & Sendable>: Sendable {
    private var groups: [Key: Group] = [:]
    public private(set) var counts: [Group: Int] = [:]

    public init() {}

    public subscript(group: Group) -> Int { counts[group] ?? 0 }
    public func contains(_ key: Key) -> Bool { groups[key] != nil }

    public mutating func insert(_ key: Key, in group: Group) {
        remove(key)
        groups[key] = group
        counts[group, default: 0] += 1
    }

    public mutating func remove(_ key: Key) {
        guard let group = groups.removeValue(forKey: key), let count = counts[group] else { return }
        counts[group] = count > 1 ? count - 1 : nil
    }

    public mutating func removeAll() { (groups, counts) = ([:], [:]) }
}

/// Things that are there or not, by key, as likes of posts: shown at once as this person left them and counted by group. Whatever
/// is told when, and however often, what is shown in the end is what the server has.
public struct OptimisticKeys<Group: Hashable & Sendable, Key: Hashable & Sendable>: Sendable {
    private struct Wish: Sendable {
        var isThere: Bool
        /// The server has taken it; until it has told of the key, nobody knows better.
        var isAnswered = false
        var isHeard = false
    }

    private var confirmed = KeyedCounts<Group, Key>()
    private var wishes: [Key: Wish] = [:]
    private let group: @Sendable (Key) -> Group

    public init(group: @escaping @Sendable (Key) -> Group) { self.group = group }

    public func contains(_ key: Key) -> Bool { wishes[key]?.isThere ?? confirmed.contains(key) }

    public func count(_ group: Group) -> Int {
        wishes.reduce(confirmed[group]) { count, wish in
            guard self.group(wish.key) == group, wish.value.isThere != confirmed.contains(wish.key) else {
                return count
            }
            return wish.value.isThere ? count + 1 : count - 1
        }
    }

    /// Shown at once.
    public mutating func write(_ key: Key, isThere: Bool) { wishes[key] = Wish(isThere: isThere) }

    /// All that was written of it has been taken by the server.
    public mutating func succeeded(_ key: Key) {
        wishes[key]?.isAnswered = true
        if wishes[key]?.isHeard == true { wishes[key] = nil }
    }

    /// It is as the server has it.
    public mutating func failed(_ key: Key) { wishes[key] = nil }

    public mutating func hear(_ key: Key, isThere: Bool) {
        if isThere { confirmed.insert(key, in: group(key)) } else { confirmed.remove(key) }
        wishes[key]?.isHeard = true
        if wishes[key]?.isAnswered == true { wishes[key] = nil }
    }

    /// Everything there is.
    public mutating func replaceAll(_ keys: some Sequence<Key>) {
        confirmed.removeAll()
        for key in keys { confirmed.insert(key, in: group(key)) }
        for key in Array(wishes.keys) {
            wishes[key]?.isHeard = true
            if wishes[key]?.isAnswered == true { wishes[key] = nil }
        }
    }
}
