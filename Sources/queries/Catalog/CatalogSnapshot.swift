import Change
import Policy

/// What the catalog says of the published tables at one moment. Nothing in it ever changes: who holds one can ask it on
/// any thread.
public final class CatalogSnapshot: Sendable {
    /// Grows by one with each snapshot that differs from the one before, also where only a role's rights differ.
    public let version: UInt64
    public let publication: String
    /// By schema and name.
    public let tables: [CatalogTable]
    public let text: TextRules
    public let policies: PolicyBook
    /// Tables whose every change is in the log, from some position on, so that memberships can live on them.
    public let followable: [UInt32: LSN]
    /// Positions at which the members of a table cannot be determined any more.
    public let unknownPasts: UnknownPasts
    public let privilegedRoles: PrivilegedRoles
    /// Another text whenever private channels may be for others than before.
    public let messageRules: String
    /// Partitions and partitioned tables whose rows are published as those of another table: that one's name as SQL.
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

    public func table(_ schema: String, _ name: String) -> CatalogTable? {
        byName[QualifiedName(schema, name)]
    }

    /// Those that are not published.
    public var tablesOfPolicies: [CatalogTable] { policies.tables.values.sorted { $0.oid < $1.oid } }

    /// A published table, or one that policies read.
    public func related(_ oid: UInt32) -> CatalogTable? { byOID[oid] ?? policies.tables[oid] }

    /// A table that memberships live on.
    public func followed(_ oid: UInt32) -> CatalogTable? { isFollowed(oid) ? related(oid) : nil }

    /// Whether memberships may live on the table: all of its changes come down the stream.
    public func isFollowed(_ table: UInt32) -> Bool { followable[table] != nil }

    /// The tables that a binding means. `*` stands for any text; `%` and `_` are characters as any other.
    public func tables(schema: String, table: String) -> [CatalogTable] {
        if !NamePattern.isPattern(schema), !NamePattern.isPattern(table) {
            return self.table(schema, table).map { [$0] } ?? []
        }
        let schemas = NamePattern(schema)
        let names = NamePattern(table)
        return tables.filter { schemas.matches($0.schema) && names.matches($0.name) }
    }
}

/// A name in which `*` stands for any text.
struct NamePattern {
    private let pieces: [[UInt8]]

    static func isPattern(_ text: String) -> Bool { text.utf8.contains(UInt8(ascii: "*")) }

    init(_ text: String) {
        pieces = text.utf8.split(separator: UInt8(ascii: "*"), omittingEmptySubsequences: false).map { Array($0) }
    }

    /// The pieces between the stars in order, each as early as it goes: no choice made that way can hide a match.
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
