/// Converter of changes to the app's row type. It fills in large values that an update left unchanged and the server
/// did not send, from the row's last version.
struct RowReader<Row: LiveRow>: Sendable {
    private var versions = LastVersions()

    mutating func batch(_ told: TableBatch) -> LiveBatch<Row> {
        var batch = LiveBatch<Row>()
        batch.position = told.position
        batch.refetchReason = told.refetchReason
        batch.isFirst = told.isFirst
        batch.isCaughtUp = told.isCaughtUp
        batch.problems = told.problems
        batch.hasMore = told.hasMore
        if let rows = told.rows {
            batch.rows = rows.compactMap { row in read(row, &batch.unreadableRows)?.row }
        }
        for change in told.changes {
            if let change = read(change, &batch.unreadableRows) { batch.changes.append(change) }
        }
        return batch
    }

    private mutating func read(_ change: RowChange, _ unreadable: inout [UnreadableRow]) -> LiveChange<Row>? {
        do {
            return try read(change)
        } catch {
            unreadable.append(UnreadableRow(change: change, reason: Self.words(error)))
            return nil
        }
    }

    private mutating func read(_ told: RowChange) throws -> LiveChange<Row> {
        var change = told
        if let error = change.errors.first { throw Incomplete(words: error) }
        switch change.kind {
        case .insert, .update:
            versions.complete(&change, key: Row.key)
            let row = try RowImage(change.record).decode(Row.self)
            return change.kind == .insert ? .inserted(row) : .updated(row, was: whole(change.oldRecord))
        case .delete, .leaving:
            guard Row.hasKey(change.oldRecord) else {
                throw Incomplete(words: "the server did not tell which row it was")
            }
            let id = try Row.id(of: RowImage(change.oldRecord))
            versions.forget(change.oldRecord, key: Row.key)
            let was = whole(change.oldRecord)
            return change.kind == .delete ? .deleted(id, was: was) : .left(id, was: was)
        }
    }

    /// Returns the row in the app's type; nil if the record is incomplete, for example has only the key.
    private func whole(_ record: [String: JSONValue]) -> Row? { try? RowImage(record).decode(Row.self) }

    private struct Incomplete: Error {
        let words: String
    }

    private static func words(_ error: any Error) -> String {
        (error as? Incomplete)?.words ?? RowDecoder.reason(error)
    }
}

/// Last versions of rows with large values. Only large values can be missing in an update.
struct LastVersions: Sendable {
    static let maximumRows = 1000
    private static let largeBytes = 1000

    private var versions: [String: [String: JSONValue]] = [:]
    /// Names of the rows in the order in which they arrived. Names of removed rows remain, and are skipped.
    private var order: [String] = []

    mutating func complete(_ change: inout RowChange, key: [String]) {
        let absent = change.absentColumns
        let isLarge = change.record.values.contains(where: Self.isLarge)
        // Most changes end here.
        if absent.isEmpty, !isLarge, versions.isEmpty { return }
        let name = Self.name(change.record, key)
        for column in absent { change.record[column] = change.oldRecord[column] ?? versions[name]?[column] }
        guard isLarge || change.record.values.contains(where: Self.isLarge) else {
            versions[name] = nil
            return
        }
        if versions.updateValue(change.record, forKey: name) == nil { order.append(name) }
        if order.count > Self.maximumRows { versions[order.removeFirst()] = nil }
    }

    mutating func forget(_ record: [String: JSONValue], key: [String]) { versions[Self.name(record, key)] = nil }

    private static func name(_ record: [String: JSONValue], _ key: [String]) -> String {
        JSONValue.array(key.map { record[$0] ?? .null }).json
    }

    private static func isLarge(_ value: JSONValue) -> Bool {
        switch value {
        case .string(let text), .number(let text): text.utf8.count >= largeBytes
        case .array, .object: value.json.utf8.count >= largeBytes
        case .null, .bool: false
        }
    }
}
