import Change
import Console
import EventLog
import Explaining
import History
import Postgres
import Settings

/// A change that is named by its offset, and who is asked about it.
extension HistoryLog {
    func change(at offset: UInt64, masks: [ColumnMask] = []) throws -> RecordedChange {
        var query = HistoryQuery(from: .offset(offset), to: .offset(offset < .max ? offset + 1 : offset))
        query.masks = masks
        var reader = try HistoryReader(self, query)
        while let item = try reader.next() { if case .change(let change) = item { return change } }
        throw CommandFailure(.notFound, "the log has no change at @\(offset); \(try extent())")
    }

    /// Which offsets it holds, in words.
    func extent() throws -> String {
        let segments = try segments()
        let end = segments[segments.count - 1].endOffset
        return "it holds @\(segments[0].firstOffset) to @\(end == 0 ? 0 : end - 1)"
    }
}

extension Arguments {
    /// `4711` or `@4711`; `name` is what is said of another text.
    func offset(_ text: String, named name: String) throws(UsageError) -> UInt64 {
        let digits = text.hasPrefix("@") ? text.dropFirst() : Substring(text)
        guard let offset = UInt64(digits), digits.utf8.allSatisfy({ (48...57).contains($0) }) else {
            throw UsageError("\(name) \(text): expected a number, such as 4711 or @4711")
        }
        return offset
    }
}

extension Explainer.Settings {
    /// Of the database that is configured, which can be reached.
    init(_ configuration: Configuration, _ database: ConnectionTarget) {
        self.init(
            database: database, policies: configuration.policyDatabaseURL.map { ConnectionTarget($0.revealed) },
            publication: configuration.publication, deletesAreStrict: configuration.deletesAreStrict)
    }
}
