import Bytes
import Change
import Matching
import Policy
import TestSupport
import Testing

/// Value of a column in an image.
enum Cell: Equatable {
    case null
    /// Large value that was not sent, because it did not change.
    case unchanged
    case text(String)
}

/// Change described by a test, with values by column name.
struct RowChange {
    var operation: Operation
    var relation: NotedRelation
    var oldImage: OldImage = .none
    var old: [String: Cell] = [:]
    var new: [String: Cell] = [:]
}

struct NotedRelation {
    var fingerprint: UInt64
    var relation: Relation

    init(_ fingerprint: UInt64, oid: UInt32 = 1, _ columns: [String], key: [String] = ["id"]) {
        self.fingerprint = fingerprint
        relation = Relation(
            oid: oid, schema: "public", name: "t\(oid)", identity: .primaryKey,
            columns: columns.map {
                Column(
                    name: $0, typeOID: 25, typeName: "text", isIdentity: key.contains($0),
                    isPrimaryKey: key.contains($0))
            })
    }

    func image(_ cells: [String: Cell]) -> [UInt8] {
        var writer = ByteWriter()
        writer.append(big: UInt16(relation.columns.count))
        for column in relation.columns {
            switch cells[column.name] ?? .null {
            case .null: writer.append(UInt8(ascii: "n"))
            case .unchanged: writer.append(UInt8(ascii: "u"))
            case .text(let text):
                writer.append(UInt8(ascii: "t"))
                writer.append(big: UInt32(text.utf8.count))
                writer.append(text)
            }
        }
        return writer.bytes.copied()
    }
}

enum Stored {
    static func part(_ changes: [RowChange]) -> [UInt8] {
        var writer = ByteWriter()
        let info = TransactionInfo(xid: 7, commitLSN: .zero, endLSN: .zero, commitTime: 0)
        TransactionCodec.begin(info, firstIndex: 0, to: &writer)
        for change in changes {
            let old = change.oldImage == .none ? [] : change.relation.image(change.old)
            let new = change.operation == .delete ? [] : change.relation.image(change.new)
            TransactionCodec.append(
                change.operation, relation: change.relation.fingerprint, oldImage: change.oldImage,
                old: old.span.bytes, new: new.span.bytes, to: &writer)
        }
        TransactionCodec.finish(endLSN: .zero, changeCount: UInt32(changes.count), in: &writer)
        return writer.bytes.copied()
    }
}

/// Members that a change matched, in ascending order.
struct Met: Equatable {
    var certain: [UInt32] = []
    var asking: [UInt32] = []
}

extension PredicateIndex {
    /// Returns the members that each change matched. Declares relations when needed.
    mutating func matches(_ changes: [RowChange]) throws -> [Met] {
        let bytes = Stored.part(changes)
        var part = try TransactionPart(bytes.span.bytes)
        var batch = MatchBatch()
        var result: [Met] = []
        while true {
            let outcome = try match(&part, into: &batch)
            for change in 0..<batch.changeCount { result.append(met(batch, change)) }
            switch outcome {
            case .judged: if batch.changeCount == 0 { return result }
            case .unknownRelation(let fingerprint):
                let change = try #require(changes.first { $0.relation.fingerprint == fingerprint })
                noteRelation(fingerprint, change.relation.relation)
            }
        }
    }

    private func met(_ batch: borrowing MatchBatch, _ change: Int) -> Met {
        var met = Met()
        let certain = batch.certain(of: change)
        for index in certain.indices {
            let members = members(of: certain, at: index)
            for place in members.indices { met.certain.append(members[place]) }
        }
        let asking = batch.asking(of: change)
        for index in asking.indices {
            let members = members(of: asking, at: index)
            for place in members.indices { met.asking.append(members[place]) }
        }
        met.certain.sort()
        met.asking.sort()
        return met
    }

    /// Returns one Bool for each change: true if its matching was left out. The changes must fit into one batch, and
    /// their relations must be declared.
    mutating func left(_ changes: [RowChange]) throws -> [Bool] {
        let bytes = Stored.part(changes)
        var part = try TransactionPart(bytes.span.bytes)
        var batch = MatchBatch()
        _ = try match(&part, into: &batch, leavingPartial: true)
        var left: [Bool] = []
        for change in 0..<batch.changeCount {
            #expect(!batch.isLeft(change) || batch.certain(of: change).isEmpty && batch.asking(of: change).isEmpty)
            left.append(batch.isLeft(change))
        }
        return left
    }

    mutating func certain(_ change: RowChange) throws -> [UInt32] { try matches([change])[0].certain }
}

/// Table that most tests subscribe to.
enum Notes {
    static let facts: [ColumnFacts] = [
        column("id", 20, "bigint"), column("owner", 2950, "uuid"),
        column("title", 25, "text", .deterministic(name: nil)),
        column("amount", 1700, "numeric"), column("code", 1042, "character", .deterministic(name: nil)),
        column("done", 16, "boolean"), column("score", 23, "integer"),
        ColumnFacts(name: "tags", type: tags, collation: .deterministic(name: nil)),
    ]
    private static let tags = TypeFacts(
        oid: 1009, name: "text[]", shape: .array(of: TypeFacts(oid: 25, name: "text")))
    static let names = facts.map(\.name)
    static let relation = NotedRelation(100, names)

    private static func column(
        _ name: String, _ oid: UInt32, _ type: String, _ collation: Collation = .none
    )
        -> ColumnFacts
    {
        ColumnFacts(name: name, type: TypeFacts(oid: oid, name: type), collation: collation)
    }

    /// The same columns, with amounts as texts, so that one column can be compared in two ways.
    static let textual = facts.map { facts in
        guard facts.name == "amount" else { return facts }
        return ColumnFacts(name: "amount", type: TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil))
    }

    /// Returns the filter's predicate. Literals that PostgreSQL would have to read are used unchanged.
    static func predicate(_ filter: String, _ facts: [ColumnFacts] = facts) throws -> Predicate {
        guard let filter = try Filter.parse(filter, within: .init(bytes: 10_000, conditions: 100, depth: 10)) else {
            return .always
        }
        let check = try FilterCheck(
            filter, columns: facts,
            settings: .init(maximumListElements: 100, maximumKeys: 1000, maximumWork: 1 << 20, text: .plainUTF8))
        return try Predicate(check, canonical: check.literals.map(\.text))
    }

    static let settings = FilterCheck.Settings(
        maximumListElements: 100, maximumKeys: 1000, maximumWork: 1 << 20, text: .plainUTF8)

    /// Returns the predicate of a policy without claims.
    static func policy(_ term: Term, asker: UInt32 = 1) throws -> Predicate {
        guard case .residual(let residual) = RowPolicy(term).residual(claims: [], role: [], answers: [:]) else {
            throw ByteError(expected: "a policy that asks nothing", offset: 0)
        }
        return residual.predicate(keys: [], asker: asker, settings: settings)
    }

    static func term(_ column: String) -> Term {
        let slot = facts.firstIndex { $0.name == column } ?? 0
        return .column(slot, facts[slot].type)
    }

    static func equal(_ column: String, _ value: String) -> Term {
        let slot = facts.firstIndex { $0.name == column } ?? 0
        return .apply(equality(facts[slot]), [.constant(Array(value.utf8), facts[slot].type), term(column)])
    }

    /// Returns the term `value = ANY (tags)`.
    static func tagged(_ value: String) -> Term {
        let title = facts[2]
        return .anyElement(equality(title), .constant(Array(value.utf8), title.type), array: term("tags"))
    }

    private static func equality(_ column: ColumnFacts) -> Function {
        guard
            let function = Function.infix("=", column.type, column.type, column.collation, text: .plainUTF8)
        else { preconditionFailure("each of these types has an equality") }
        return function
    }

    static func index(columns: [String] = names, allowance: Allowance = .unlimited) -> PredicateIndex {
        var index = PredicateIndex(maximumRelations: 10, allowance: allowance)
        index.declare(table: 1, columns: columns)
        return index
    }

    static func insert(_ cells: [String: Cell]) -> RowChange {
        RowChange(operation: .insert, relation: relation, new: cells)
    }
}
