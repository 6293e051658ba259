// Former names of public members.

import Foundation

extension Tidewire {
    @available(*, deprecated, renamed: "userID")
    public var user: String? { userID }

    @available(*, deprecated, renamed: "updateNetwork(isReachable:)")
    public func networkChanged(isReachable: Bool) { updateNetwork(isReachable: isReachable) }

    @available(*, deprecated, renamed: "fetchChanges(after:of:limit:)")
    public func changes(
        after position: LogPosition?, of tables: [TableBinding], limit: Int = 1000
    ) async throws -> TableBatch {
        try await fetchChanges(after: position, of: tables, limit: limit)
    }

    @available(*, deprecated, renamed: "fetchChanges(after:of:table:where:limit:)")
    public func changes<Row: LiveRow>(
        after position: LogPosition?, of row: Row.Type, table: String? = nil, where filter: LiveFilter<Row>? = nil,
        limit: Int = 1000
    ) async throws -> LiveBatch<Row> {
        try await fetchChanges(after: position, of: row, table: table, where: filter, limit: limit)
    }

    @available(*, deprecated, renamed: "counts(of:where:by:window:snapshot:fetch:)")
    public func count<Row: LiveRow, Group: Hashable & Sendable>(
        _ row: Row.Type, where filter: LiveFilter<Row>? = nil, by group: @escaping @Sendable (Row) -> Group,
        window: BatchWindow = .standard, snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil
    ) -> LiveCounts<Row, Group> {
        counts(of: row, where: filter, by: group, window: window, snapshot: snapshot, fetch: fetch)
    }
}

extension LiveQuery {
    @available(*, deprecated, renamed: "init(of:from:where:window:snapshot:fetch:origin:sortedBy:)")
    public convenience init(
        _ tidewire: Tidewire, _ row: Row.Type, where filter: LiveFilter<Row>? = nil, window: BatchWindow = .standard,
        snapshot: Bool? = nil, fetch: (@Sendable () async throws -> [Row])? = nil,
        origin: @escaping @Sendable (Row) -> String? = { "\($0.id)" },
        sortedBy areInOrder: @escaping @Sendable (Row, Row) -> Bool
    ) {
        self.init(
            of: row, from: tidewire, where: filter, window: window, snapshot: snapshot, fetch: fetch, origin: origin,
            sortedBy: areInOrder)
    }

    @available(*, deprecated, renamed: "refetchReason")
    public var mustRefetch: RefetchReason? { refetchReason }

    @available(*, deprecated, renamed: "replaceRows(with:)")
    public func replace(_ rows: [Row]) { replaceRows(with: rows) }

    @available(*, deprecated, renamed: "write(_:origin:send:)")
    public func optimistic(_ row: Row, origin: String, send: () async throws -> Row?) async throws {
        try await write(row, origin: origin, send: send)
    }

    @available(*, deprecated, renamed: "confirmWrite(origin:as:)")
    public func succeeded(_ origin: String, _ row: Row) { confirmWrite(origin: origin, as: row) }

    @available(*, deprecated, renamed: "confirmWrite(origin:)")
    public func succeeded(_ origin: String) { confirmWrite(origin: origin) }

    @available(*, deprecated, renamed: "revertWrite(origin:)")
    public func failed(_ origin: String) { revertWrite(origin: origin) }
}

extension LiveBatch {
    @available(*, deprecated, renamed: "unreadableRows")
    public var unreadable: [UnreadableRow] { unreadableRows }

    @available(*, deprecated, renamed: "refetchReason")
    public var mustRefetch: RefetchReason? { refetchReason }
}

extension TableBatch {
    @available(*, deprecated, renamed: "refetchReason")
    public var mustRefetch: RefetchReason? { refetchReason }
}

extension OptimisticRows {
    @available(*, deprecated, renamed: "confirmWrite(origin:as:)")
    public mutating func succeeded(_ origin: Origin, _ row: Row) { confirmWrite(origin: origin, as: row) }

    @available(*, deprecated, renamed: "confirmWrite(origin:)")
    public mutating func succeeded(_ origin: Origin) { confirmWrite(origin: origin) }

    @available(*, deprecated, renamed: "revertWrite(origin:)")
    public mutating func failed(_ origin: Origin) { revertWrite(origin: origin) }

    @available(*, deprecated, renamed: "apply(_:)")
    public mutating func hear(_ change: LiveChange<Row>) { apply(change) }

    @available(*, deprecated, renamed: "replaceAll(with:)")
    public mutating func replaceAll(_ fetched: [Row]) { replaceAll(with: fetched) }
}

extension OptimisticKeys {
    @available(*, deprecated, renamed: "count(in:)")
    public func count(_ group: Group) -> Int { count(in: group) }

    @available(*, deprecated, renamed: "confirmWrite(_:)")
    public mutating func succeeded(_ key: Key) { confirmWrite(key) }

    @available(*, deprecated, renamed: "revertWrite(_:)")
    public mutating func failed(_ key: Key) { revertWrite(key) }

    @available(*, deprecated, renamed: "apply(_:isThere:)")
    public mutating func hear(_ key: Key, isThere: Bool) { apply(key, isThere: isThere) }

    @available(*, deprecated, renamed: "replaceAll(with:)")
    public mutating func replaceAll(_ keys: some Sequence<Key>) { replaceAll(with: keys) }
}

extension PendingWrite {
    @available(*, deprecated, renamed: "init(id:table:row:kind:values:parent:isReplaceable:date:)")
    public init(
        id: String = UUID().uuidString, table: String, row: String, kind: Kind, values: [String: JSONValue] = [:],
        parent: String? = nil, newestOnly: Bool = false, madeAt: Date
    ) {
        self.init(
            id: id, table: table, row: row, kind: kind, values: values, parent: parent, isReplaceable: newestOnly,
            date: madeAt)
    }

    @available(*, deprecated, renamed: "isReplaceable")
    public var newestOnly: Bool { isReplaceable }
}

extension OfflineWrites {
    @available(*, deprecated, renamed: "pendingWrites")
    public var waiting: [PendingWrite] { pendingWrites }

    @available(*, deprecated, renamed: "hasUnsentWrite(table:row:)")
    public func hasUnsent(_ table: String, _ row: String) -> Bool { hasUnsentWrite(table: table, row: row) }

    @available(*, deprecated, renamed: "add(_:table:row:values:parent:isReplaceable:)")
    public func add(
        _ kind: PendingWrite.Kind, _ table: String, _ row: String, _ values: [String: JSONValue] = [:],
        parent: String? = nil, newestOnly: Bool = false
    ) throws(Refusal) {
        try add(kind, table: table, row: row, values: values, parent: parent, isReplaceable: newestOnly)
    }

    @available(*, deprecated, renamed: "removeAll()")
    public func clear() { removeAll() }
}

extension MergedBatch {
    @available(*, deprecated, renamed: "rowsToStore")
    public var stored: [Row] { rowsToStore }

    @available(*, deprecated, renamed: "idsToRemove")
    public var removed: [Row.ID] { idsToRemove }

    @available(*, deprecated, renamed: "keptIDs")
    public var kept: [Row.ID] { keptIDs }
}

extension BatchWindow {
    @available(*, deprecated, renamed: "init(quietTime:maximumDelay:maximumChanges:)")
    public init(quiet: Duration, longest: Duration, maximumChanges: Int = 1000) {
        self.init(quietTime: quiet, maximumDelay: longest, maximumChanges: maximumChanges)
    }

    @available(*, deprecated, renamed: "quietTime")
    public var quiet: Duration {
        get { quietTime }
        set { quietTime = newValue }
    }

    @available(*, deprecated, renamed: "maximumDelay")
    public var longest: Duration {
        get { maximumDelay }
        set { maximumDelay = newValue }
    }
}

extension LiveFilter {
    @available(*, deprecated, renamed: "init(column:operation:value:)")
    public init(column: String, _ operation: String, _ value: String) {
        self.init(column: column, operation: operation, value: value)
    }
}

extension TidewireStorage {
    @available(*, deprecated, renamed: "save(_:as:)")
    public func save(_ data: Data?, _ name: String) { save(data, as: name) }
}

extension OfflineWrites.Limits {
    @available(*, deprecated, renamed: "maximumWrites")
    public var writes: Int {
        get { maximumWrites }
        set { maximumWrites = newValue }
    }

    @available(*, deprecated, renamed: "maximumBytes")
    public var bytes: Int {
        get { maximumBytes }
        set { maximumBytes = newValue }
    }

    @available(*, deprecated, message: "use maximumAge, a Duration")
    public var age: Double {
        get { maximumSeconds }
        set { maximumSeconds = newValue }
    }
}

extension TidewireRoom {
    @available(*, deprecated, renamed: "send(_:event:whenOffline:)")
    public func send(_ event: String, _ payload: JSONValue, whenOffline: OfflineBehavior = .fail) async throws {
        try await send(payload, event: event, whenOffline: whenOffline)
    }

    @available(*, deprecated, renamed: "send(_:event:whenOffline:)")
    @_disfavoredOverload
    public func send(_ event: String, _ payload: some Encodable, whenOffline: OfflineBehavior = .fail) async throws {
        try await send(payload, event: event, whenOffline: whenOffline)
    }

    @available(*, deprecated, renamed: "messages(event:as:skipped:)")
    public func messages<Value: Decodable & Sendable>(
        _ event: String, as type: Value.Type, skipped: (@Sendable (RoomMessageError) -> Void)? = nil
    ) -> Messages<Value> {
        messages(event: event, as: type, skipped: skipped)
    }

    @available(*, deprecated, renamed: "messages(event:skipped:)")
    public func messages(
        _ event: String, skipped: (@Sendable (RoomMessageError) -> Void)? = nil
    ) -> Messages<JSONValue> {
        messages(event: event, skipped: skipped)
    }
}
