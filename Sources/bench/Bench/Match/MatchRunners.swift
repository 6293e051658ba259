import Bytes
import Change
import Matching
import Policy
import System

/// Deliveries that a run of the benchmark `match` found: their number, and a checksum that shows a wrong subscriber.
struct Deliveries: Equatable {
    var count = 0
    var sum: UInt64 = 0

    @inline(__always)
    mutating func add(_ member: UInt32, change: Int) {
        count += 1
        sum &+= (UInt64(member) &+ 1) &* (UInt64(change) &* 2 &+ 1)
    }
}

/// Contestant that finds subscribers by the predicate index, used as a socket loop uses it.
struct IndexRunner: ~Copyable {
    private var index = PredicateIndex(maximumRelations: 64)
    private var batch = MatchBatch()
    private var handles: [PredicateIndex.Handle] = []

    init() {
        index.declare(table: MatchShape.oid, columns: MatchShape.facts.map(\.name))
        index.noteRelation(MatchShape.fingerprint, MatchShape.relation)
    }

    mutating func add(_ predicates: [Predicate]) {
        handles.reserveCapacity(predicates.count)
        for (member, predicate) in predicates.enumerated() {
            handles.append(
                index.add(table: MatchShape.oid, operations: .all, predicate: predicate, member: UInt32(member)))
        }
    }

    mutating func removeAll() {
        for handle in handles { index.remove(handle) }
        handles = []
    }

    mutating func run(_ parts: ArraySlice<[UInt8]>) throws -> Deliveries {
        var deliveries = Deliveries()
        var change = 0
        for bytes in parts {
            var part = try TransactionPart(bytes.rawBytes)
            try run(&part, &change, &deliveries)
        }
        return deliveries
    }

    private mutating func run(
        _ part: inout TransactionPart, _ change: inout Int, _ deliveries: inout Deliveries
    ) throws {
        while true {
            guard case .judged = try index.match(&part, into: &batch) else {
                throw BenchFailure("void (match): a relation was forgotten")
            }
            if batch.changeCount == 0 { return }
            for place in 0..<batch.changeCount {
                let nodes = batch.certain(of: place)
                for node in nodes.indices {
                    let members = index.members(of: nodes, at: node)
                    for member in members.indices { deliveries.add(members[member], change: change) }
                }
                change += 1
            }
        }
    }
}

/// Baseline of the benchmark `match`, which finds the subscribers of one change at a time.
protocol ChangeRunner {
    func judge(_ change: borrowing Change, _ number: Int, _ deliveries: inout Deliveries) throws
}

extension ChangeRunner {
    func run(_ parts: ArraySlice<[UInt8]>) throws -> Deliveries {
        var deliveries = Deliveries()
        var change = 0
        for bytes in parts {
            var part = try TransactionPart(bytes.rawBytes)
            while let next = try part.next() {
                try judge(next, change, &deliveries)
                change += 1
            }
        }
        return deliveries
    }
}

/// Baseline that evaluates every subscriber's predicate on every row. It locates a row's values only once.
struct LinearRunner: ChangeRunner {
    let predicates: [Predicate]

    func judge(_ change: borrowing Change, _ number: Int, _ deliveries: inout Deliveries) throws {
        let places = try RowPlaces.find(change)
        let row = RowImage(bytes: change.images, places: places.span)
        let predicates = predicates.span
        for member in predicates.indices where predicates[member].verdict(on: row) == .yes {
            deliveries.add(UInt32(member), change: number)
        }
    }
}

/// Simplest possible baseline: compares the bytes of one column with the value of every filter, without types or
/// operators.
struct BytesRunner: ChangeRunner {
    let column: Int
    private var values: [UInt8] = []
    private var ends: [Int] = []

    init(_ column: MatchShape.Filtered, count: Int) {
        self.column = MatchShape.facts.firstIndex { $0.name == column.name } ?? 0
        for number in 0..<count {
            values += column.value(number).utf8
            ends.append(values.count)
        }
    }

    func judge(_ change: borrowing Change, _ number: Int, _ deliveries: inout Deliveries) throws {
        let place = try RowPlaces.find(change)[column]
        let start = Int(place.start)
        compare(change.images.extracting(start..<start + Int(place.length)), number, &deliveries)
    }

    private func compare(_ value: RawSpan, _ change: Int, _ deliveries: inout Deliveries) {
        // SAFETY: any byte is a valid UInt8.
        let values = unsafe self.values.span.bytes
        let ends = ends.span
        var start = 0
        for member in ends.indices {
            if values.extracting(start..<ends[member]).equals(value) { deliveries.add(UInt32(member), change: change) }
            start = ends[member]
        }
    }
}

/// Baseline that looks up the column's value, as a string, in a dictionary of subscribers.
struct DictionaryRunner: ChangeRunner {
    let column: Int
    private var members: [String: [UInt32]] = [:]

    init(_ column: MatchShape.Filtered, count: Int) {
        self.column = MatchShape.facts.firstIndex { $0.name == column.name } ?? 0
        for number in 0..<count { members[column.value(number), default: []].append(UInt32(number)) }
    }

    func judge(_ change: borrowing Change, _ number: Int, _ deliveries: inout Deliveries) throws {
        for member in members[try value(change), default: []] { deliveries.add(member, change: number) }
    }

    private func value(_ change: borrowing Change) throws -> String {
        guard var columns = change.new?.columns() else { return "" }
        for _ in 0..<column { _ = try columns.next() }
        guard case .text(let text)? = try columns.next() else { return "" }
        return text.text
    }
}

enum RowPlaces {
    /// Returns the places of a new row's values in the change's images.
    static func find(_ change: borrowing Change) throws -> [ColumnPlace] {
        var places = [ColumnPlace](repeating: .absent, count: MatchShape.facts.count)
        guard var columns = change.new?.columns() else { return places }
        for slot in places.indices {
            guard case .text(let text)? = try columns.next() else { continue }
            let end = change.oldLength + columns.offset
            places[slot] = ColumnPlace(
                kind: .text, start: UInt32(end - text.byteCount), length: UInt32(text.byteCount))
        }
        return places
    }
}
