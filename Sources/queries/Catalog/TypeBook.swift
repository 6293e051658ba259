import Change
import Policy
import Postgres

/// Types of the published columns and their components. Input: rows of the catalog. Output: facts about columns.
struct TypeBook {
    struct Entry {
        var oid: UInt32
        /// Name of the type in `pg_type`.
        var name: String
        /// Name of the type as `format_type` writes it.
        var written: String
        var kind: String
        /// Oid of a domain's base type, else 0.
        var base: UInt32
        /// Oid of a true array's element type, else 0. True arrays are written in braces, unlike `point` or
        /// `oidvector`.
        var element: UInt32
        /// Delimiter between the array's elements.
        var delimiter: UInt8
        /// Extension that created the type; nil if none did.
        var fromExtension: String?
    }

    private let entries: [UInt32: Entry]
    private let labels: [UInt32: [String]]
    private let fields: [UInt32: [(name: String, type: UInt32)]]

    /// Maximum nesting of types. It is deeper than any real type, and stops at a catalog with circular references.
    private static let maximumDepth = 32
    /// First oid of users' objects (`FirstNormalObjectId`). Types with lower oids belong to PostgreSQL.
    private static let firstOfUsers: UInt32 = 16_384

    init(entries: [Entry], labels: [UInt32: [String]], fields: [UInt32: [(name: String, type: UInt32)]]) {
        self.entries = Dictionary(entries.map { ($0.oid, $0) }, uniquingKeysWith: { first, _ in first })
        self.labels = labels
        self.fields = fields
    }

    /// Returns the type of arrays with these elements; nil if it is unknown.
    func array(of element: UInt32) -> UInt32? { entries.values.first { $0.element == element }?.oid }

    var oids: [UInt32] { entries.keys.sorted() }

    // MARK: Ages

    /// Returns the labels of an enumeration, or of a domain over one; empty for every other type.
    func labels(_ oid: UInt32, _ ages: DefinitionAges) -> [LabelAge] {
        var entry = entries[oid]
        for _ in 0..<TypeBook.maximumDepth {
            guard let base = entry?.base, base != 0 else { break }
            entry = entries[base]
        }
        guard let entry, entry.kind == "e" else { return [] }
        return ages.labels[entry.oid] ?? []
    }

    /// Returns the position after which all labels and fields that the type consists of are unchanged.
    func since(_ oid: UInt32, _ ages: DefinitionAges, depth: Int = 0) -> LSN {
        guard let entry = entries[oid], depth < TypeBook.maximumDepth else { return .zero }
        if entry.base != 0 { return since(entry.base, ages, depth: depth + 1) }
        if entry.element != 0 { return since(entry.element, ages, depth: depth + 1) }
        let parts = (fields[oid] ?? []).map { since($0.type, ages, depth: depth + 1) }
        let labels = (ages.labels[oid] ?? []).map(\.since)
        return (parts + labels).reduce(ages.composites[oid] ?? .zero, max)
    }

    func name(_ oid: UInt32) -> String { entries[oid]?.name ?? "unknown" }

    // MARK: Comparison

    func facts(_ oid: UInt32) -> TypeFacts { facts(oid, depth: 0) }

    private func facts(_ oid: UInt32, depth: Int) -> TypeFacts {
        guard let entry = entries[oid], depth < TypeBook.maximumDepth else {
            return TypeFacts(oid: oid, name: "unknown", shape: .other)
        }
        if entry.base != 0 { return facts(entry.base, depth: depth + 1) }
        return TypeFacts(oid: oid, name: entry.written, shape: shape(entry, depth: depth))
    }

    private func shape(_ entry: Entry, depth: Int) -> TypeFacts.Shape {
        if entry.element != 0 {
            let element = facts(entry.element, depth: depth + 1)
            return element.shape == .other ? .other : .array(of: element)
        }
        switch entry.kind {
        case "e": return .enumeration(labels: labels[entry.oid] ?? [])
        // An extension's type may define equality in its own way.
        case "b": return entry.oid < TypeBook.firstOfUsers ? .base : .other
        default: return .other
        }
    }

    // MARK: JSON

    func rendering(_ oid: UInt32) -> ColumnRendering { rendering(oid, depth: 0) }

    private func rendering(_ oid: UInt32, depth: Int) -> ColumnRendering {
        guard let entry = entries[oid], depth < TypeBook.maximumDepth else { return .scalar(oid: oid) }
        if entry.base != 0 { return rendering(entry.base, depth: depth + 1) }
        if entry.element != 0 {
            return .array(of: rendering(entry.element, depth: depth + 1), delimiter: entry.delimiter)
        }
        if entry.kind == "c", let fields = fields[oid] {
            return .composite(
                fields.map { .init(name: $0.name, rendering: rendering($0.type, depth: depth + 1)) })
        }
        return entry.fromExtension == "hstore" && entry.name == "hstore" ? .hstore : .scalar(oid: oid)
    }
}

/// Comparison rules of the database's collations.
struct CollationBook {
    struct Entry {
        var oid: UInt32
        var quotedName: String
        var provider: String
        var collate: String?
        var ctype: String?
        var isDeterministic: Bool
    }

    static let defaultOID: UInt32 = 100

    private let entries: [UInt32: Entry]
    private let defaultIsBytewise: Bool

    /// - Parameter databaseLocale: the locale with which the database was created.
    init(entries: [Entry], databaseProvider: String, databaseLocale: String) {
        self.entries = Dictionary(entries.map { ($0.oid, $0) }, uniquingKeysWith: { first, _ in first })
        defaultIsBytewise = CollationBook.isBytewise(databaseProvider, databaseLocale)
    }

    func collation(_ oid: UInt32) -> Collation {
        if oid == 0 { return .none }
        if oid == CollationBook.defaultOID { return defaultIsBytewise ? .bytewise : .deterministic(name: nil) }
        // An unknown collation may do anything, so the hub treats it as nondeterministic and asks PostgreSQL.
        guard let entry = entries[oid] else { return .nondeterministic(name: nil) }
        guard entry.isDeterministic else { return .nondeterministic(name: entry.quotedName) }
        let isBytewise =
            entry.collate == entry.ctype && CollationBook.isBytewise(entry.provider, entry.collate ?? "")
        return isBytewise ? .bytewise : .deterministic(name: entry.quotedName)
    }

    private static func isBytewise(_ provider: String, _ locale: String) -> Bool {
        // The builtin provider's C is bytewise like the C library's; its C.UTF-8 is not.
        switch provider {
        case "c": locale == "C" || locale == "POSIX"
        case "b": locale == "C"
        default: false
        }
    }
}
