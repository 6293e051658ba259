import Catalog
import Change
import Console
import EventLog
import Explaining
import History
import Postgres
import Settings

/// Lookup of a change by its offset.
extension HistoryLog {
    /// Returns the change at an offset. Throws if the entry at that offset is no change, or the log does not have it.
    func change(at offset: UInt64) throws -> RecordedChange {
        let query = HistoryQuery(from: .offset(offset), to: .offset(offset < .max ? offset + 1 : offset))
        var reader = try HistoryReader(self, query)
        while let item = try reader.next() { if case .change(let change) = item { return change } }
        throw CommandFailure(
            .notFound, "the log has no change at @\(offset); \(try extent())",
            hint: "Offsets count entries of all kinds: 'tidewire tail' shows those of changes.")
    }

    /// Returns the range of offsets in the log as the end of a sentence: "it holds @1 to @9".
    func extent() throws -> String {
        let segments = try segments()
        let end = segments[segments.count - 1].endOffset
        return "it holds @\(segments[0].firstOffset) to @\(end == 0 ? 0 : end - 1)"
    }
}

extension Arguments {
    /// Parses an offset such as `4711` or `@4711`.
    /// - Parameter name: the argument's name, for the error message.
    func offset(_ text: String, named name: String) throws(UsageError) -> UInt64 {
        let digits = text.hasPrefix("@") ? text.dropFirst() : Substring(text)
        guard let offset = UInt64(digits), digits.utf8.allSatisfy({ (48...57).contains($0) }) else {
            throw UsageError("\(name) \(text): expected a number, such as 4711 or @4711")
        }
        return offset
    }
}

extension Option {
    static let asOfNow = Option.flag("now", "Judge by the rights, policies and memberships of now.")
}

extension Explainer.Settings {
    /// Creates settings for evaluating filters and policies on a change again. They use the log's record of the catalog
    /// at that time and the configured database. Nil if neither is available.
    /// - Parameter isOfNow: true to use the present catalog of the database instead of the log's record.
    init?(
        judging change: RecordedChange, of log: HistoryLog, isOfNow: Bool, _ configuration: Configuration,
        _ command: String
    ) throws {
        if let forgotten = change.forgotten {
            throw CommandFailure(
                .notFound, "the values of the change at @\(change.offset) were removed from the log \(forgotten.words)",
                hint: "'tidewire log audit' shows who removed them, and why.")
        }
        let record = isOfNow ? nil : try PastCatalogs.record(of: log, at: change.offset)
        try self.init(record, of: log, isOfNow: isOfNow, configuration, command)
    }

    /// Creates settings from a record of the catalog and the configured database. Nil if neither is available.
    init?(
        _ record: CatalogRecord?, of log: HistoryLog, isOfNow: Bool, _ configuration: Configuration,
        _ command: String
    ) throws {
        guard let database = configuration.databaseURL else {
            guard record != nil else { return nil }
            self.init(configuration, nil, past: (record, log))
            return
        }
        let target = ConnectionTarget(database.revealed)
        _ = try DatabaseAccess.connect(target, shown: "\(database)", command)
        self.init(configuration, target, past: isOfNow ? nil : (record, log))
    }

    /// Creates settings for evaluating filters and policies, on this database if any. `past` supplies the catalog and
    /// the memberships at the time of the change. Without it, the database's present ones apply.
    init(
        _ configuration: Configuration, _ database: ConnectionTarget?,
        past: (record: CatalogRecord?, log: HistoryLog)? = nil
    ) {
        self.init(
            database: database, policies: configuration.policyDatabaseURL.map { ConnectionTarget($0.revealed) },
            publication: configuration.publication, deletesAreStrict: configuration.deletesAreStrict)
        self.past = past?.record
        log = past?.log
    }
}
