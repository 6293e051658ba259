import Change
import Policy

/// Published tables and their policies, as PostgreSQL's catalog describes them at one moment. A snapshot never changes,
/// so any thread may use it.
public final class CatalogSnapshot: Sendable {
    /// Number of the snapshot. It grows by one with each snapshot that differs from the one before, even if only the
    /// rights of a role differ.
    public let version: UInt64
    public let publication: String
    /// Published tables, ordered by schema and name.
    public let tables: [CatalogTable]
    public let text: TextRules
    public let policies: PolicyBook
    /// LSN from which the event log has every change of a table, by the table's oid. Only these tables can hold
    /// memberships (rows that decide which rows of another table a role with its claims sees).
    public let followable: [UInt32: LSN]
    /// Positions in the WAL at which the hub cannot determine the memberships that a table held.
    public let unknownPasts: UnknownPasts
    public let privilegedRoles: PrivilegedRoles
    /// Text that changes whenever the rules of private channels may have changed.
    public let messageRules: String
    /// SQL name of the published table whose changes contain the rows, for each partition or partitioned table.
    let publishedAs: [QualifiedName: String]
    private let byOID: [UInt32: CatalogTable]
    private let byName: [QualifiedName: CatalogTable]

    public init(
        version: UInt64, publication: String, tables: [CatalogTable], text: TextRules,
        policies: PolicyBook = PolicyBook(), followable: [UInt32: LSN] = [:], unknownPasts: UnknownPasts = .none,
        privilegedRoles: PrivilegedRoles = PrivilegedRoles(), messageRules: String = "",
        publishedAs: [QualifiedName: String] = [:]
    ) {
        self.version = version
        self.publication = publication
        self.tables = tables
        self.text = text
        self.policies = policies
        self.followable = followable
        self.unknownPasts = unknownPasts
        self.privilegedRoles = privilegedRoles
        self.messageRules = messageRules
        self.publishedAs = publishedAs
        byOID = Dictionary(tables.map { ($0.oid, $0) }, uniquingKeysWith: { first, _ in first })
        byName = Dictionary(
            tables.map { (QualifiedName($0.schema, $0.name), $0) },
            uniquingKeysWith: { first, _ in first })
        assert(byOID.count == tables.count && byName.count == tables.count, "no table is published twice")
        assert(policies.version <= version, "policies are no newer than the snapshot that has them")
    }

    public func table(_ oid: UInt32) -> CatalogTable? { byOID[oid] }

    /// True if the policy is still current and its table's rows still have the same columns and types.
    public func stillHas(_ policy: JudgedPolicy) -> Bool {
        policies.version == policy.version && related(policy.table).map(policy.row.isOf) ?? false
    }

    public func table(_ schema: String, _ name: String) -> CatalogTable? {
        byName[QualifiedName(schema, name)]
    }

    /// Tables that policies read but the publication does not include, ordered by oid.
    public var tablesOfPolicies: [CatalogTable] { policies.tables.values.sorted { $0.oid < $1.oid } }

    /// Returns a published table, or a table that policies read.
    public func related(_ oid: UInt32) -> CatalogTable? { byOID[oid] ?? policies.tables[oid] }

    /// Returns the table if it can hold memberships; nil otherwise.
    public func followed(_ oid: UInt32) -> CatalogTable? { isFollowed(oid) ? related(oid) : nil }

    /// True if the table can hold memberships, because the replication stream has all of its changes.
    public func isFollowed(_ table: UInt32) -> Bool { followable[table] != nil }

    /// Returns the published tables that a binding's schema and table match. `*` matches any text; `%` and `_` are
    /// ordinary characters.
    public func tables(schema: String, table: String) -> [CatalogTable] {
        if !NamePattern.isPattern(schema), !NamePattern.isPattern(table) {
            return self.table(schema, table).map { [$0] } ?? []
        }
        let schemas = NamePattern(schema)
        let names = NamePattern(table)
        return tables.filter { schemas.matches($0.schema) && names.matches($0.name) }
    }
}

/// Name pattern in which `*` matches any text.
struct NamePattern {
    private let pieces: [[UInt8]]

    static func isPattern(_ text: String) -> Bool { text.utf8.contains(UInt8(ascii: "*")) }

    init(_ text: String) {
        pieces = text.utf8.split(separator: UInt8(ascii: "*"), omittingEmptySubsequences: false).map { Array($0) }
    }

    /// True if the name matches. The method finds the pieces between the stars in order, each at the first possible
    /// place. A later place never allows a match that the first one prevents.
    func matches(_ name: String) -> Bool {
        var rest = Array(name.utf8)[...]
        guard let first = pieces.first, let last = pieces.last, rest.starts(with: first) else { return false }
        guard pieces.count > 1 else { return rest.count == first.count }
        rest = rest.dropFirst(first.count)
        for piece in pieces[1..<(pieces.count - 1)] {
            guard let place = NamePattern.place(of: piece, in: rest) else { return false }
            rest = rest[(place + piece.count)...]
        }
        return rest.count >= last.count && rest.suffix(last.count).elementsEqual(last)
    }

    private static func place(of piece: [UInt8], in text: ArraySlice<UInt8>) -> Int? {
        guard text.count >= piece.count else { return nil }
        return (text.startIndex...(text.endIndex - piece.count)).first { text[$0...].starts(with: piece) }
    }
}
