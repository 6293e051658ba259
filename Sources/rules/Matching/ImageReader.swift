import Bytes
import Change
import Policy

/// Reader that finds, in the row images of a change, the values that predicates read.
struct ImageReader: ~Copyable {
    /// Places of the row's values in the bytes of its image, by column slot. Only slots that predicates read are valid.
    private(set) var places = Pool<ColumnPlace>()

    /// Reads the row that the index evaluates. For `.new`, returns false if the row after the change (or the deleted
    /// row) lacks a used column. For the other cases, returns true.
    @inline(__always)
    @discardableResult
    mutating func read(
        _ judged: PredicateIndex.Judged, _ change: borrowing Change, _ map: borrowing RelationMap,
        _ use: borrowing SlotUse
    ) throws(ByteError) -> Bool {
        if judged == .new {
            let isWhole = try read(change, map, use)
            if use.readsOldRow { return try readBefore(change, map, use) && isWhole }
            return isWhole
        }
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

    /// Reads the row before the change. Reads nothing if the change does not contain the whole row.
    private mutating func readWholeOld(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    ) throws(ByteError) {
        clear(use)
        if change.oldImage == .full { try readOld(change, map) }
    }

    /// Reads all columns of the row before the change that the change contains.
    private mutating func readKnownOld(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    ) throws(ByteError) {
        clear(use)
        if change.oldImage != .none { return try readOld(change, map) }
        // An update that keeps the identity's columns contains their values only in the new image.
        guard change.operation == .update else { return }
        _ = try readNew(change, map, identityOnly: true)
    }

    /// Reads the row after an insert or update, or the row before a delete. Returns false if it lacks a used column.
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

    /// Completes a row from its old image, if there is one. PostgreSQL does not send a large value again that did not
    /// change. Not every old image contains such a value either.
    @inline(never)
    private mutating func readRest(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    ) throws(ByteError) -> Bool {
        if change.oldImage != .none { try readOld(change, map) }
        return holdsAll(use)
    }

    /// True if no used column of the row is absent.
    private func holdsAll(_ use: borrowing SlotUse) -> Bool {
        for index in 0..<use.ofRowCount where places[Int(use.used[index])].kind == .absent { return false }
        return true
    }

    // MARK: The row before the change

    /// Reads the row before the change into the slots after those of the row. Returns false if a used column is absent.
    /// An insert has no such row, so it lacks nothing.
    @inline(never)
    private mutating func readBefore(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    ) throws(ByteError) -> Bool {
        switch change.operation {
        case .update: try readUpdated(change, map, use)
        case .delete:
            for index in use.ofRowCount..<use.used.count {
                let slot = Int(use.used[index])
                places[slot] = places[slot - use.columnCount]
            }
        case .insert, .truncate, .message:
            for index in use.ofRowCount..<use.used.count {
                places[Int(use.used[index])] = ColumnPlace(kind: .null, start: 0, length: 0)
            }
        }
        for index in use.ofRowCount..<use.used.count where places[Int(use.used[index])].kind == .absent { return false }
        return true
    }

    private mutating func readUpdated(
        _ change: borrowing Change, _ map: borrowing RelationMap, _ use: borrowing SlotUse
    ) throws(ByteError) {
        guard change.oldImage != .none else {
            // An update that keeps the identity's columns contains their values only in the new image.
            for index in 0..<map.steps.count {
                guard let slot = map.steps[index].slot, map.steps[index].isIdentity else { continue }
                places[slot + use.columnCount] = places[slot]
            }
            return
        }
        var reader = ByteReader(change.images.extracting(first: change.oldLength))
        let count = min(Int(try reader.uint16()), map.steps.count)
        for index in 0..<count {
            let (place, _) = try Self.next(&reader)
            let step = map.steps[index]
            guard let slot = step.slot, change.oldImage == .full || step.isIdentity else { continue }
            places[slot + use.columnCount] = place
        }
    }

    @inline(__always)
    private mutating func clear(_ use: borrowing SlotUse) {
        if places.count < use.slotCount { places.resize(to: use.slotCount, filling: .absent) }
        for index in 0..<use.used.count { places[Int(use.used[index])] = .absent }
    }

    /// Reads the new image. Returns false if it lacks values that the old image may contain.
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

    /// Reads from the old image the values that are still absent.
    @inline(never)
    private mutating func readOld(_ change: borrowing Change, _ map: borrowing RelationMap) throws(ByteError) {
        guard change.oldImage != .none else { return }
        var reader = ByteReader(change.images.extracting(first: change.oldLength))
        let count = min(Int(try reader.uint16()), map.steps.count)
        for index in 0..<count {
            let (place, _) = try Self.next(&reader)
            let step = map.steps[index]
            guard let slot = step.slot, places[slot].kind == .absent else { continue }
            // An old image may contain only the identity's columns. NULL in its other columns means "unknown".
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
            // The hub asks PostgreSQL for text only, and cannot read a binary value.
            try reader.skip(Int(try reader.uint32()))
            return (.absent, false)
        default:
            throw ByteError(expected: "a column kind (n, u, t or b)", offset: reader.offset - 1)
        }
    }
}
