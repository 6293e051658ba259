/// Converter of the server's changes to the app's row type. An update may lack large values that it left unchanged. The
/// reader takes them from the last version of the row that it has seen.
struct RowReader<Row: LiveRow>: Sendable {
    private var versions = LastVersions()

    /// Converts a batch. Changes that do not fit the app's type go to `unreadableRows`.
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

    /// Returns a row in the app's type; nil if the record is incomplete, for example has only the key.
    private func whole(_ record: [String: JSONValue]) -> Row? { try? RowImage(record).decode(Row.self) }

    private struct Incomplete: Error {
        let words: String
    }

    /// Returns a text about the reason why a change does not fit the app's type.
    private static func words(_ error: any Error) -> String {
        (error as? Incomplete)?.words ?? RowDecoder.reason(error)
    }
}

/// Last seen versions of rows with large values, from which updates that lack those values are completed. PostgreSQL
/// leaves only large values out of an update.
struct LastVersions: Sendable {
    static let maximumRows = 1000
    private static let largeBytes = 1000

    private var versions: [String: [String: JSONValue]] = [:]
    /// Names of the rows in the order in which they were stored, for removing the oldest. Names of rows that were
    /// removed earlier remain in it.
    private var order: [String] = []

    /// Adds missing large values to a change, and stores its row if that has large values.
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
