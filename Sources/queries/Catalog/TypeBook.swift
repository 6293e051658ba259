import Change
import Policy
import Postgres

/// Types of columns and the types of which they consist, as the catalog describes them.
struct TypeBook {
    struct Entry {
        var oid: UInt32
        /// Name of the type in `pg_type`.
        var name: String
        /// Name of the type as PostgreSQL's `format_type` writes it.
        var written: String
        /// Kind of the type: `pg_type.typtype`.
        var kind: String
        /// Oid of the base type if the type is a domain, else 0.
        var base: UInt32
        /// Oid of the element type if the type is a true array, else 0. PostgreSQL writes a true array in braces,
        /// unlike `point` or `oidvector`.
        var element: UInt32
        /// Character that separates the elements in the text of an array.
        var delimiter: UInt8
        /// Name of the extension that the type belongs to; nil if there is none.
        var fromExtension: String?
    }

    private let entries: [UInt32: Entry]
    private let labels: [UInt32: [String]]
    private let fields: [UInt32: [(name: String, type: UInt32)]]

    /// Maximum nesting of types. Real types are nested less deeply; the limit stops at a catalog with circular
    /// references.
    private static let maximumDepth = 32
    /// Lowest oid of users' objects (`FirstNormalObjectId`). Types with lower oids belong to PostgreSQL.
    private static let firstOfUsers: UInt32 = 16_384

    init(entries: [Entry], labels: [UInt32: [String]], fields: [UInt32: [(name: String, type: UInt32)]]) {
        self.entries = Dictionary(entries.map { ($0.oid, $0) }, uniquingKeysWith: { first, _ in first })
        self.labels = labels
        self.fields = fields
    }

    /// Returns the oid of the array type whose elements have this type; nil if it is unknown.
    func array(of element: UInt32) -> UInt32? { entries.values.first { $0.element == element }?.oid }

    var oids: [UInt32] { entries.keys.sorted() }

    // MARK: Ages

    /// Returns the labels of the enum type, or of the enum under a domain, each with the LSN after which its text in a
    /// row means this label. Empty for every other type.
    func labels(_ oid: UInt32, _ ages: DefinitionAges) -> [LabelAge] {
        var entry = entries[oid]
        for _ in 0..<TypeBook.maximumDepth {
            guard let base = entry?.base, base != 0 else { break }
            entry = entries[base]
        }
        guard let entry, entry.kind == "e" else { return [] }
        return ages.labels[entry.oid] ?? []
    }

    /// Returns the LSN after which all labels and fields in the type are unchanged.
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
        // A type of an extension may define equality differently from its text.
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

/// Collations of the columns, and how each compares texts.
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

    /// Creates the book.
    ///
    /// - Parameter databaseLocale: the locale with which the database was created.
    init(entries: [Entry], databaseProvider: String, databaseLocale: String) {
        self.entries = Dictionary(entries.map { ($0.oid, $0) }, uniquingKeysWith: { first, _ in first })
        defaultIsBytewise = CollationBook.isBytewise(databaseProvider, databaseLocale)
    }

    func collation(_ oid: UInt32) -> Collation {
        if oid == 0 { return .none }
        if oid == CollationBook.defaultOID { return defaultIsBytewise ? .bytewise : .deterministic(name: nil) }
        // An unknown collation may compare in any way. The hub treats it as nondeterministic and asks PostgreSQL.
        guard let entry = entries[oid] else { return .nondeterministic(name: nil) }
        guard entry.isDeterministic else { return .nondeterministic(name: entry.quotedName) }
        let isBytewise =
            entry.collate == entry.ctype && CollationBook.isBytewise(entry.provider, entry.collate ?? "")
        return isBytewise ? .bytewise : .deterministic(name: entry.quotedName)
    }

    private static func isBytewise(_ provider: String, _ locale: String) -> Bool {
        // The locale C of the builtin provider compares bytes, like that of the C library. The locale C.UTF-8 does not.
        switch provider {
        case "c": locale == "C" || locale == "POSIX"
        case "b": locale == "C"
        default: false
        }
    }
}
