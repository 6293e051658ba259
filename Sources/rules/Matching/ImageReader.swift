import Bytes
import Change
import Policy

/// Finds the values that predicates look at in the row images of a change.
struct ImageReader: ~Copyable {
    /// By slot; only those of used slots mean anything.
    private(set) var places = Pool<ColumnPlace>()

    /// False where the image of the row after a change, or of one that goes, lacks a column that is used.
    @inline(__always)
    @discardableResult
    mutating func read(
        _ judged: PredicateIndex.Judged, _ change: borrowing Change, _ map: borrowing RelationMap,
        _ use: borrowing SlotUse
    ) throws(ByteError) -> Bool {
        if judged == .new { return try read(change, map, use) }
        try readPast(judged, change, map, use)
        return true
    }

    @inline(never)
    private mutating func readPast(
        _ judged: PredicateIndex.Judged, _ change: borrowing Change, _ map: borrowing RelationMap,
        _ use: borrowing SlotUse
    ) throws(ByteError) {
        if judged == .old { try readWholeOld(change, map, use) } else { try readKnownOld(change, map, use) }
    }

    /// The row as it was: nothing of it where the change does not hold all of it.
    private mutating func readWholeOld(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    ) throws(ByteError) {
        clear(use)
        if change.oldImage == .full { try readOld(change, map) }
    }

    /// The row as it was, as far as the change says.
    private mutating func readKnownOld(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    ) throws(ByteError) {
        clear(use)
        if change.oldImage != .none { return try readOld(change, map) }
        // What identifies a row is sent once where it stays the same.
        guard change.operation == .update else { return }
        _ = try readNew(change, map, identityOnly: true)
    }

    /// The image that is judged: the row as it is after an insert or update, as it was before a delete.
    @inline(__always)
    mutating func read(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    )
        throws(ByteError) -> Bool
    {
        clear(use)
        if change.operation == .delete { return try readDeleted(change, map, use) }
        if try readNew(change, map), !map.lacksColumns { return true }
        return try readRest(change, map, use)
    }

    @inline(never)
    private mutating func readDeleted(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    ) throws(ByteError) -> Bool {
        try readOld(change, map)
        return holdsAll(use)
    }

    /// A large value that did not change is not sent again; the old image has it, if it has the column at all.
    @inline(never)
    private mutating func readRest(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    ) throws(ByteError) -> Bool {
        if change.oldImage != .none { try readOld(change, map) }
        return holdsAll(use)
    }

    private func holdsAll(_ use: borrowing SlotUse) -> Bool {
        for index in 0..<use.used.count where places[Int(use.used[index])].kind == .absent { return false }
        return true
    }

    @inline(__always)
    private mutating func clear(_ use: borrowing SlotUse) {
        if places.count < use.slotCount { places.resize(to: use.slotCount, filling: .absent) }
        for index in 0..<use.used.count { places[Int(use.used[index])] = .absent }
    }

    /// False when values were left out that the old image may hold.
    @inline(__always)
    private mutating func readNew(
        _ change: borrowing Change, _ map: borrowing RelationMap, identityOnly: Bool = false
    ) throws(ByteError) -> Bool {
        var reader = ByteReader(change.images)
        try reader.skip(change.oldLength)
        let count = min(Int(try reader.uint16()), map.steps.count)
        var isComplete = true
        for index in 0..<count {
            let (place, isUnchanged) = try Self.next(&reader)
            guard let slot = map.steps[index].slot, !identityOnly || map.steps[index].isIdentity else { continue }
            if isUnchanged { isComplete = false }
            places[slot] = place
        }
        return isComplete
    }

    /// Fills in what is still absent.
    @inline(never)
    private mutating func readOld(_ change: borrowing Change, _ map: borrowing RelationMap) throws(ByteError) {
        guard change.oldImage != .none else { return }
        var reader = ByteReader(change.images.extracting(first: change.oldLength))
        let count = min(Int(try reader.uint16()), map.steps.count)
        for index in 0..<count {
            let (place, _) = try Self.next(&reader)
            let step = map.steps[index]
            guard let slot = step.slot, places[slot].kind == .absent else { continue }
            // In an image of the key the other columns are NULL and mean "unknown".
            if change.oldImage == .full || step.isIdentity { places[slot] = place }
        }
    }

    @inline(__always)
    @_lifetime(reader: copy reader)
    private static func next(_ reader: inout ByteReader) throws(ByteError) -> (ColumnPlace, isUnchanged: Bool) {
        switch try reader.uint8() {
        case UInt8(ascii: "t"):
            let length = try reader.uint32()
            let start = UInt32(truncatingIfNeeded: reader.offset)
            try reader.skip(Int(length))
            return (ColumnPlace(kind: .text, start: start, length: length), false)
        case UInt8(ascii: "n"): return (ColumnPlace(kind: .null, start: 0, length: 0), false)
        case UInt8(ascii: "u"): return (.absent, true)
        case UInt8(ascii: "b"):
            // Binary values are not asked for, and nothing here can read them.
            try reader.skip(Int(try reader.uint32()))
            return (.absent, false)
        default:
            throw ByteError(expected: "a column kind (n, u, t or b)", offset: reader.offset - 1)
        }
    }
}
