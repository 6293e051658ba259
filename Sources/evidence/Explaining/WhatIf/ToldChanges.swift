import Catalog
import Change
import History

/// Which changes of a window each of some holders would be told of: a bit for each pair of them. Behind those are as many bits
/// for each of a holder's policies on the change's table, where there are several.
final class ToldChanges {
    private let first: UInt64
    private let wordsOfEach: Int
    private let holders: Int
    /// Bits that each holder has for policies.
    private let parts: Int
    private var bits: [UInt64]
    private let changes: WindowChanges
    /// Rows that PostgreSQL was asked about, and rows that it was not: those count as told to nobody.
    var asked = 0
    var unasked = 0
    /// Rows of which only PostgreSQL could say whether they are asked for: those, too.
    var unfiltered = 0

    init(_ changes: WindowChanges, holders: Int, parts: Int) {
        self.changes = changes
        self.holders = holders
        self.parts = parts
        first = changes.offsets.lowerBound
        wordsOfEach = (changes.offsets.count + 63) / 64
        bits = Array(repeating: 0, count: wordsOfEach * holders * (1 + parts))
    }

    /// `part`: which of the policies; nil is all of them together, which is what he is told by.
    func note(_ offset: UInt64, to holder: Int, part: Int?, _ table: CatalogTable, _ operation: Operation) {
        guard changes.offsets.contains(offset) else { return }
        let place = Int(offset - first)
        bits[row(holder, part) * wordsOfEach + place / 64] |= 1 << UInt64(place % 64)
        if part == nil { changes.note(offset, of: table, operation) }
    }

    private func row(_ holder: Int, _ part: Int?) -> Int { part.map { holders + holder * parts + $0 } ?? holder }

    /// Whether one of several policies shows a change.
    func shows(_ offset: UInt64, to holder: Int, part: Int) -> Bool {
        let place = Int(offset - first)
        return bits[row(holder, part) * wordsOfEach + place / 64] >> UInt64(place % 64) & 1 == 1
    }

    /// Where one of the two tells the holder of a change: whether each does.
    static func visit(
        _ before: ToldChanges, _ after: ToldChanges, holder: Int, _ body: (UInt64, Bool, Bool) -> Void
    ) {
        let start = holder * before.wordsOfEach
        for word in 0..<before.wordsOfEach {
            let (one, other) = (before.bits[start + word], after.bits[start + word])
            var either = one | other
            while either != 0 {
                let bit = UInt64(either.trailingZeroBitCount)
                either &= either - 1
                body(before.first + UInt64(word) * 64 + bit, one >> bit & 1 == 1, other >> bit & 1 == 1)
            }
        }
    }
}

/// Of the changes of a window that anybody would be told of: the table and the operation.
final class WindowChanges {
    let offsets: Range<UInt64>
    private(set) var tables: [TableName] = []
    private var numbers: [TableName: UInt16] = [:]
    /// By offset: the table's number and the operation, or zero.
    private var facts: [UInt32]

    init(_ offsets: Range<UInt64>) {
        self.offsets = offsets
        facts = Array(repeating: 0, count: offsets.count)
    }

    func note(_ offset: UInt64, of table: CatalogTable, _ operation: Operation) {
        let place = Int(offset - offsets.lowerBound)
        guard facts[place] == 0 else { return }
        let name = TableName(schema: table.schema, name: table.name)
        let number = numbers[name] ?? UInt16(tables.count)
        if numbers[name] == nil {
            numbers[name] = number
            tables.append(name)
        }
        facts[place] = (UInt32(number) + 1) << 8 | UInt32(operation.rawValue)
    }

    /// The number of the change's table among `tables`, and what became of its row.
    func fact(at offset: UInt64) -> (table: Int, operation: Operation)? {
        let fact = facts[Int(offset - offsets.lowerBound)]
        guard fact != 0, let operation = Operation(rawValue: UInt8(truncatingIfNeeded: fact)) else { return nil }
        return (Int(fact >> 8) - 1, operation)
    }
}
