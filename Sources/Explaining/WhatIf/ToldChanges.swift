import Catalog
import Change
import History

/// Which changes of a window each of some holders would be told of: a bit for each pair of them.
final class ToldChanges {
    private let first: UInt64
    private let wordsOfEach: Int
    private var bits: [UInt64]
    private let changes: WindowChanges
    /// Rows that PostgreSQL was asked about, and rows that it was not: those count as told to nobody.
    var asked = 0
    var unasked = 0

    init(_ changes: WindowChanges, holders: Int) {
        self.changes = changes
        first = changes.offsets.lowerBound
        wordsOfEach = (changes.offsets.count + 63) / 64
        bits = Array(repeating: 0, count: wordsOfEach * holders)
    }

    func note(_ offset: UInt64, to pair: Ruling.Pair, _ operation: Operation) {
        guard changes.offsets.contains(offset) else { return }
        let place = Int(offset - first)
        bits[pair.holder * wordsOfEach + place / 64] |= 1 << UInt64(place % 64)
        changes.note(offset, of: pair.table, operation)
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

    /// The number of the change's table among `tables`.
    func table(at offset: UInt64) -> Int? {
        let fact = facts[Int(offset - offsets.lowerBound)]
        return fact == 0 ? nil : Int(fact >> 8) - 1
    }
}
