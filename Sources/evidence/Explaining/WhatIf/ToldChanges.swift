import Catalog
import Change
import History

/// Bit set of the changes in a window that each holder would receive: one bit for each pair of holder and offset. If a
/// table has several policies, further bits follow: one for each holder, offset and policy.
final class ToldChanges {
    private let first: UInt64
    private let wordsOfEach: Int
    private let holders: Int
    /// Number of policies for which each holder has a bit at each offset.
    private let parts: Int
    private var bits: [UInt64]
    /// Bits of the changes whose verdict is unknown, in the order of `bits`; empty if an unknown verdict counts as no.
    private var unknowns: [UInt64]
    /// Causes of the unknown verdicts of each holder.
    private(set) var causes: [Set<UnknownCause>]
    private let changes: WindowChanges
    /// Number of rows about which PostgreSQL was asked.
    var asked = 0
    /// Number of rows about which PostgreSQL should have been asked but was not. They count as not received.
    var unasked = 0
    /// Number of rows for which only PostgreSQL could decide a filter. They also count as not received.
    var unfiltered = 0

    init(_ changes: WindowChanges, holders: Int, parts: Int, keepsUnknown: Bool = false) {
        self.changes = changes
        self.holders = holders
        self.parts = parts
        first = changes.offsets.lowerBound
        wordsOfEach = (changes.offsets.count + 63) / 64
        bits = Array(repeating: 0, count: wordsOfEach * holders * (1 + parts))
        unknowns = keepsUnknown ? Array(repeating: 0, count: wordsOfEach * holders) : []
        causes = Array(repeating: [], count: holders)
    }

    /// Records that it is unknown if the holder would receive the change.
    func noteUnknown(_ offset: UInt64, to holder: Int, _ cause: UnknownCause) {
        guard !unknowns.isEmpty, changes.offsets.contains(offset) else { return }
        let place = Int(offset - first)
        unknowns[holder * wordsOfEach + place / 64] |= 1 << UInt64(place % 64)
        causes[holder].insert(cause)
    }

    /// Returns true if the holder would receive the change; nil if that is unknown.
    func isTold(_ offset: UInt64, to holder: Int) -> Bool? {
        assert(changes.offsets.contains(offset), "only changes of the window are asked about")
        let (word, bit) = (holder * wordsOfEach + Int(offset - first) / 64, (offset - first) % 64)
        if bits[word] >> bit & 1 == 1 { return true }
        return !unknowns.isEmpty && unknowns[word] >> bit & 1 == 1 ? nil : false
    }

    /// Calls `body` for each offset in a range whose change the holder would receive, or may receive, on at least one
    /// side.
    static func visit(
        _ sides: [ToldChanges], holder: Int, in range: Range<UInt64>, _ body: (UInt64) throws -> Void
    ) rethrows {
        guard let one = sides.first else { return }
        let range = range.clamped(to: one.changes.offsets)
        guard !range.isEmpty else { return }
        let words = Int(range.lowerBound - one.first) / 64...Int(range.upperBound - 1 - one.first) / 64
        for word in words {
            var either: UInt64 = 0
            for side in sides {
                let place = holder * side.wordsOfEach + word
                either |= side.bits[place] | (side.unknowns.isEmpty ? 0 : side.unknowns[place])
            }
            while either != 0 {
                let offset = one.first + UInt64(word) * 64 + UInt64(either.trailingZeroBitCount)
                either &= either - 1
                if range.contains(offset) { try body(offset) }
            }
        }
    }

    /// Records that a policy shows a change to the holder. `part` is the policy's index; nil means all policies
    /// together, which decide if the holder receives the change.
    func note(_ offset: UInt64, to holder: Int, part: Int?, _ table: CatalogTable, _ operation: Operation) {
        guard changes.offsets.contains(offset) else { return }
        let place = Int(offset - first)
        bits[row(holder, part) * wordsOfEach + place / 64] |= 1 << UInt64(place % 64)
        if part == nil { changes.note(offset, of: table, operation) }
    }

    /// Records the table, the operation and the commit time of a change that some holder would, or may, receive.
    func noteFacts(_ offset: UInt64, of table: CatalogTable, _ operation: Operation, at time: Int64) {
        guard changes.offsets.contains(offset) else { return }
        changes.note(offset, of: table, operation)
        changes.note(offset, at: time)
    }

    private func row(_ holder: Int, _ part: Int?) -> Int {
        assert(holder < holders && (part ?? -1) < parts, "a policy's bits are those of its own holder")
        return part.map { holders + holder * parts + $0 } ?? holder
    }

    /// True if the policy with index `part` shows the holder the change.
    func shows(_ offset: UInt64, to holder: Int, part: Int) -> Bool {
        assert(changes.offsets.contains(offset), "only changes of the window are asked about")
        let place = Int(offset - first)
        return bits[row(holder, part) * wordsOfEach + place / 64] >> UInt64(place % 64) & 1 == 1
    }

    /// Calls `body` for each change that the holder would receive on at least one side, with the result of each side.
    static func visit(
        _ before: ToldChanges, _ after: ToldChanges, holder: Int, _ body: (UInt64, Bool, Bool) -> Void
    ) {
        assert(
            before.first == after.first && before.wordsOfEach == after.wordsOfEach, "both sides are of the same window")
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

/// Table and operation of each change in a window that at least one holder would receive.
final class WindowChanges {
    let offsets: Range<UInt64>
    private(set) var tables: [TableName] = []
    private var numbers: [TableName: UInt16] = [:]
    /// Table index and operation in one number, for each offset of the window; zero for other changes.
    private var facts: [UInt32]
    /// Commit time for each offset, in microseconds since 1970; empty if the caller does not need times.
    private var times: [Int64]

    init(_ offsets: Range<UInt64>, keepsTimes: Bool = false) {
        self.offsets = offsets
        facts = Array(repeating: 0, count: offsets.count)
        times = keepsTimes ? Array(repeating: .min, count: offsets.count) : []
    }

    fileprivate func note(_ offset: UInt64, at time: Int64) {
        if !times.isEmpty { times[Int(offset - offsets.lowerBound)] = time }
    }

    /// Returns the recorded commit time of a change, in microseconds since 1970; `Int64.min` if times are not kept.
    func time(at offset: UInt64) -> Int64 { times.isEmpty ? .min : times[Int(offset - offsets.lowerBound)] }

    func note(_ offset: UInt64, of table: CatalogTable, _ operation: Operation) {
        let place = Int(offset - offsets.lowerBound)
        guard facts[place] == 0 else { return }
        let name = TableName(schema: table.schema, name: table.name)
        let number = numbers[name] ?? UInt16(tables.count)
        if numbers[name] == nil {
            numbers[name] = number
            tables.append(name)
        }
        assert(numbers.count == tables.count && Int(number) < tables.count, "each table has a number of its own")
        facts[place] = (UInt32(number) + 1) << 8 | UInt32(operation.rawValue)
    }

    /// Returns the index of the change's table in `tables`, and the operation; nil if no holder would receive the
    /// change.
    func fact(at offset: UInt64) -> (table: Int, operation: Operation)? {
        let fact = facts[Int(offset - offsets.lowerBound)]
        assert(Int(fact >> 8) <= tables.count, "a change's table was noted with it")
        guard fact != 0, let operation = Operation(rawValue: UInt8(truncatingIfNeeded: fact)) else { return nil }
        return (Int(fact >> 8) - 1, operation)
    }
}
