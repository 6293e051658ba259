/// Rows with those that are not on the server yet: shown at once under a temporary id, one entry at the end whichever comes
/// first, the server's answer or the change itself, and gone again if it fails.
///
/// What belongs together is known by an origin: a value that the app writes into a column of its choice, or the row's id where
/// the app chooses that. Not by who wrote it, which would also hide the same person's other device.
public struct OptimisticRows<Row: LiveRow>: Sendable {
    public typealias Origin = String

    private struct Pending: Sendable {
        var row: Row
        /// What the row was, where it is an update.
        var former: Row?
    }

    private var rows: [Row.ID: Row] = [:]
    private var order: [Row.ID] = []
    private var pending: [Origin: Pending] = [:]
    private let origin: @Sendable (Row) -> Origin?

    /// - Parameter origin: what the row's column says of where it comes from.
    public init(origin: @escaping @Sendable (Row) -> Origin?) { self.origin = origin }

    /// In the order in which they came to be known.
    public var all: [Row] { order.compactMap { rows[$0] } }
    public var pendingOrigins: Set<Origin> { Set(pending.keys) }
    public subscript(id: Row.ID) -> Row? { rows[id] }

    /// Shown at once; what the server says of it has this origin.
    public mutating func write(_ row: Row, origin: Origin) {
        pending[origin] = Pending(row: row, former: rows[row.id])
        put(row)
    }

    /// The server's answer to it.
    public mutating func succeeded(_ origin: Origin, _ row: Row) { replace(origin, with: row) }

    /// It is as it was. Whatever somebody else has made of the row meanwhile stays.
    public mutating func failed(_ origin: Origin) {
        guard let failed = pending.removeValue(forKey: origin) else { return }
        if let former = failed.former { put(former) } else { remove(failed.row.id) }
    }

    public mutating func hear(_ change: Change<Row>) {
        switch change {
        case .inserted(let row), .updated(let row, _):
            if let name = origin(row), pending[name] != nil { return replace(name, with: row) }
            // What is shown of one's own until its answer comes stays; a failure falls back to this.
            if let name = pending.first(where: { $0.value.row.id == row.id })?.key {
                pending[name]?.former = row
            } else {
                put(row)
            }
        case .deleted(let id, _), .left(let id, _): remove(id)
        }
    }

    /// Everything there is; one's own that are not there yet stay.
    public mutating func replaceAll(_ fetched: [Row]) {
        for id in order where !pending.values.contains(where: { $0.row.id == id }) { rows[id] = nil }
        for row in fetched { hear(.inserted(row)) }
        order.removeAll { rows[$0] == nil }
    }

    private mutating func replace(_ origin: Origin, with row: Row) {
        if let own = pending.removeValue(forKey: origin), own.row.id != row.id {
            if let place = order.firstIndex(of: own.row.id), rows[row.id] == nil {
                order[place] = row.id
                rows[own.row.id] = nil
            } else {
                remove(own.row.id)
            }
        }
        put(row)
    }

    private mutating func put(_ row: Row) {
        if rows.updateValue(row, forKey: row.id) == nil, !order.contains(row.id) { order.append(row.id) }
    }

    private mutating func remove(_ id: Row.ID) {
        rows[id] = nil
        order.removeAll { $0 == id }
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
