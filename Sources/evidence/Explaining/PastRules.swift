import Catalog
import Change
import EventLog
import History
import Judging
import Policy

/// Identity of one rule about who may see rows of a table: the table's own settings, a policy, or the rights of a role.
public struct RuleKey: Sendable, Hashable, Comparable {
    public enum Subject: Sendable, Hashable {
        /// Row security and published operations of the table.
        case table
        case policy(String)
        /// Columns that a role may read, and the policies that apply to it.
        case role(String)
    }

    public var table: String
    public var subject: Subject

    private var order: (String, Int, String) {
        switch subject {
        case .table: (table, 0, "")
        case .policy(let name): (table, 1, name)
        case .role(let name): (table, 2, name)
        }
    }

    public static func < (left: RuleKey, right: RuleKey) -> Bool { left.order < right.order }
}

/// All rules of one recorded catalog, each as a text.
public struct RuleBook: Sendable, Equatable {
    /// Offset from which the hub decided by these rules. `time` is the Unix time in microseconds at which it recorded
    /// them.
    public var since: UInt64
    public var time: Int64
    public var rules: [RuleKey: String]

    /// Creates the rules of a record; nil if another version of the program wrote the record and this one cannot read
    /// it.
    init?(_ record: CatalogRecord) {
        guard let view = try? CatalogTrial(record).view(for: record.roles) else { return nil }
        (since, time, rules) = (record.since, record.time, [:])
        for table in view.snapshot.tables {
            let name = TableName(schema: table.schema, name: table.name).description
            let security =
                table.hasRowSecurity
                ? table.forcesRowSecurity ? "row security, also for the owner" : "row security" : "no row security"
            rules[RuleKey(table: name, subject: .table)] =
                "\(security); publishes \(table.operations.words)\(table.hasRowFilter ? ", with a row filter" : "")"
            for policy in view.snapshot.policies.policies[table.oid] ?? [] {
                rules[RuleKey(table: name, subject: .policy(policy.name))] =
                    "\(policy.isPermissive ? "PERMISSIVE" : "RESTRICTIVE") USING (\(policy.text))"
            }
            for role in record.roles {
                rules[RuleKey(table: name, subject: .role(role))] = Self.rights(of: role, to: table, view)
            }
        }
    }

    private static func rights(of role: String, to table: CatalogTable, _ view: CatalogView) -> String {
        guard let access = view.access(of: role, to: table) else { return "the role does not exist" }
        guard access.hasUsage, !access.selectable.isEmpty else { return "may read nothing" }
        let names = access.selectable.compactMap { table.columns.indices.contains($0) ? table.columns[$0].name : nil }
        let columns = names.count == table.columns.count ? "all columns" : names.joined(separator: ", ")
        guard access.rowSecurityIsActive else { return "reads \(columns) of every row" }
        let policies = view.policy(of: role, on: table)?.parts.map(\.name) ?? []
        return policies.isEmpty
            ? "reads \(columns), and no row: no policy applies to it"
            : "reads \(columns) of rows by \(policies.joined(separator: ", "))"
    }
}

extension RowOperations {
    fileprivate var words: String {
        let named: [(RowOperations, String)] = [(.insert, "insert"), (.update, "update"), (.delete, "delete")]
        let words = named.filter { contains($0.0) }.map(\.1)
        return words.isEmpty ? "nothing" : words.joined(separator: ", ")
    }
}

/// Difference in one rule between two recorded catalogs.
public struct RuleChange: Sendable, Equatable {
    public var key: RuleKey
    /// Text of the rule in the earlier catalog; nil if the rule did not exist.
    public var before: String?
    public var after: String?
}

/// History of the rules, over the time that the log has.
public struct PastRules {
    /// Rules of each catalog that differ from those of the catalog before it, oldest first.
    public private(set) var books: [RuleBook] = []
    /// Number of catalog records that this version of the program cannot read.
    public private(set) var unreadable = 0

    public init(_ log: HistoryLog) throws {
        var reader = try EventLogReader(directory: log.directory, from: .oldest, matchingAnyOf: [RowKey.catalog])
        var last: CatalogRecord?
        while try reader.next() {
            guard reader.entry.kind == .catalogRecord else { continue }
            for record in try CatalogRecordCodec.decode(reader.payload) {
                // Most records repeat the previous one, so that a reader that begins in a later segment finds it.
                if let last, last.agrees(with: record), last.roles == record.roles { continue }
                last = record
                guard let book = RuleBook(record) else {
                    unreadable += 1
                    continue
                }
                if books.last?.rules != book.rules { books.append(book) }
            }
        }
    }

    /// Returns the rules by which the hub evaluated the change at the offset; nil if the log does not have them.
    public static func book(of log: HistoryLog, at offset: UInt64) throws -> RuleBook? {
        try PastCatalogs.record(of: log, at: offset).flatMap { RuleBook($0) }
    }

    /// Returns the newest rules that were recorded at or before the Unix time in microseconds.
    public func book(atTime time: Int64) -> RuleBook? { books.last { $0.time <= time } }

    public static func changes(from before: RuleBook?, to after: RuleBook) -> [RuleChange] {
        let former = before?.rules ?? [:]
        return Set(former.keys).union(after.rules.keys).sorted().compactMap { key in
            former[key] == after.rules[key]
                ? nil : RuleChange(key: key, before: former[key], after: after.rules[key])
        }
    }
}
