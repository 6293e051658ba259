import Bytes
import Change
import Policy

/// Table of the benchmark `match`, the filters on it, and changes of its rows.
struct MatchShape {
    /// Column that the filters of a case compare.
    enum Filtered: String, CaseIterable {
        case uuid, int8, text

        var name: String {
            switch self {
            case .uuid: "owner_id"
            case .int8: "id"
            case .text: "title"
            }
        }

        func value(_ number: Int) -> String {
            switch self {
            case .uuid: MatchShape.uuid(number)
            case .int8: "\(1_000_000_007 + number * 97)"
            case .text: "title of row \(number) as people write them"
            }
        }
    }

    static let fingerprint: UInt64 = 0x6d61_7463_6874_6162
    static let oid: UInt32 = 16_384

    static let facts: [ColumnFacts] = [
        fact("id", 20, "bigint"), fact("owner_id", 2950, "uuid"),
        fact("title", 25, "text", .deterministic(name: nil)), fact("done", 16, "boolean"),
        fact("score", 23, "integer"), fact("created_at", 1184, "timestamp with time zone"),
        fact("note", 25, "text", .deterministic(name: nil)), fact("amount", 1700, "numeric"),
    ]

    static let relation = Relation(
        oid: oid, schema: "public", name: "tasks", identity: .primaryKey,
        columns: facts.map {
            Column(
                name: $0.name, typeOID: $0.type.oid, typeName: $0.type.name, isIdentity: $0.name == "id",
                isPrimaryKey: $0.name == "id")
        })

    private static func fact(
        _ name: String, _ oid: UInt32, _ type: String, _ collation: Collation = .none
    ) -> ColumnFacts {
        ColumnFacts(name: name, type: TypeFacts(oid: oid, name: type), collation: collation)
    }

    static func predicate(_ filter: String) throws -> Predicate {
        guard let tree = try Filter.parse(filter, within: .init(bytes: 4096, conditions: 16, depth: 4)) else {
            return .always
        }
        let check = try FilterCheck(
            tree, columns: facts,
            settings: .init(maximumListElements: 100, maximumKeys: 1000, maximumWork: 1 << 20, text: .plainUTF8))
        return try Predicate(check, canonical: check.literals.map(\.text))
    }

    /// Returns inserts of rows as a stored transaction. A row's `number` determines the values of the three filtered
    /// columns; `score` is independent of it.
    static func part(_ rows: ArraySlice<(number: Int, score: Int)>) -> [UInt8] {
        var writer = ByteWriter(capacity: 64 << 10)
        let info = TransactionInfo(xid: 700, commitLSN: .zero, endLSN: .zero, commitTime: 0)
        TransactionCodec.begin(info, firstIndex: 0, to: &writer)
        let nothing: [UInt8] = []
        for row in rows {
            let image = image(row.number, score: row.score)
            TransactionCodec.append(
                .insert, relation: fingerprint, oldImage: .none, old: nothing.rawBytes,
                new: image.rawBytes, to: &writer)
        }
        TransactionCodec.finish(endLSN: .zero, changeCount: UInt32(rows.count), in: &writer)
        return writer.bytes.copied()
    }

    private static func image(_ number: Int, score: Int) -> [UInt8] {
        let values = [
            Filtered.int8.value(number), Filtered.uuid.value(number), Filtered.text.value(number), "t", "\(score)",
            "2026-03-01 10:20:32.12+00", String(repeating: "words of a note ", count: 6), "12.50",
        ]
        var writer = ByteWriter()
        writer.append(big: UInt16(values.count))
        for value in values {
            writer.append(UInt8(ascii: "t"))
            writer.append(big: UInt32(value.utf8.count))
            writer.append(value)
        }
        return writer.bytes.copied()
    }

    private static func uuid(_ number: Int) -> String {
        let digits = Array(hex(scatter(number)) + hex(scatter(number + 1_000_000_007)))
        let groups = [0..<8, 8..<12, 12..<16, 16..<20, 20..<32]
        return groups.map { String(digits[$0]) }.joined(separator: "-")
    }

    private static func hex(_ value: UInt64) -> String {
        let text = String(value, radix: 16)
        return String(repeating: "0", count: 16 - text.count) + text
    }

    /// Returns a pseudo-random number that depends only on the given one, so that every run has the same numbers.
    static func scatter(_ number: Int) -> UInt64 {
        var value = UInt64(number) &* 0x9e37_79b9_7f4a_7c15
        value = (value ^ value >> 30) &* 0xbf58_476d_1ce4_e5b9
        value = (value ^ value >> 27) &* 0x94d0_49bb_1331_11eb
        return value ^ value >> 31
    }
}

/// Stored transactions with changes whose subscribers are known: one number for each change determines its values.
struct MatchChanges {
    static let changesPerPart = 100

    private(set) var parts: [[UInt8]] = []
    private(set) var numbers: [Int] = []

    /// Creates changes. Each has one of `values` different values, in pseudo-random order.
    init(count: Int, values: Int) {
        numbers = (0..<count).map { Int(MatchShape.scatter($0) % UInt64(values)) }
        let rows = numbers.map { (number: $0, score: $0 % 1000) }
        for start in stride(from: 0, to: count, by: Self.changesPerPart) {
            parts.append(MatchShape.part(rows[start..<min(start + Self.changesPerPart, count)]))
        }
    }

    var count: Int { numbers.count }
}
