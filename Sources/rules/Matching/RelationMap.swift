import Bytes
import Change

/// Map from the columns of a stored row image to the slots of a table, by name. A log holds rows of schemas whose
/// columns stood elsewhere.
struct RelationMap: ~Copyable {
    /// Use of one column of an image.
    struct Step: BitwiseCopyable {
        private static let skipped: UInt16 = .max
        private var target: UInt16
        /// True if an old image that holds only the key has a value for the column.
        let isIdentity: Bool

        init(slot: Int?, isIdentity: Bool) {
            target = slot.map { UInt16($0) } ?? Self.skipped
            self.isIdentity = isIdentity
        }

        /// Slot of the value; nil if no predicate reads it.
        var slot: Int? { target == Self.skipped ? nil : Int(target) }
    }

    /// Table of the rows; nil if nobody is subscribed to it.
    let table: UInt32?
    let oid: UInt32
    /// Slot of each column, whether used or not.
    private var columns = Pool<Step>()
    /// Columns up to the last one that any predicate reads.
    private(set) var steps = Pool<Step>()
    /// True if predicates read columns that rows of the schema do not have.
    private(set) var lacksColumns = false
    private var plannedFor: UInt32?

    /// Creates the map. Columns in `foreign`, by place, count as absent.
    init(table: UInt32?, relation: Relation, slots: [String: Int], foreign: Set<Int> = []) {
        self.table = table
        oid = relation.oid
        for (index, column) in relation.columns.enumerated() {
            let slot = foreign.contains(index) ? nil : slots[column.name]
            columns.append(Step(slot: slot, isIdentity: column.isIdentity))
        }
    }

    /// Plans anew which columns are read, if the table's predicates now read other columns.
    @inline(__always)
    mutating func plan(_ use: borrowing SlotUse) {
        if plannedFor != use.version { replan(use) }
    }

    @inline(never)
    private mutating func replan(_ use: borrowing SlotUse) {
        steps.removeAll()
        var length = 0
        for index in 0..<columns.count {
            let step = columns[index]
            let isUsed = step.slot.map { use.isUsed($0) } ?? false
            steps.append(Step(slot: isUsed ? step.slot : nil, isIdentity: step.isIdentity))
            if isUsed { length = index + 1 }
        }
        while steps.count > length { _ = steps.removeLast() }
        var held = 0
        for index in 0..<steps.count where steps[index].slot != nil { held += 1 }
        assert(held <= use.used.count, "one slot filled from two columns")
        lacksColumns = held < use.used.count
        plannedFor = use.version
    }
}

/// Number of a table's predicates that read each of its slots.
struct SlotUse: ~Copyable {
    private var counts = Pool<UInt32>()
    private(set) var used = Pool<UInt16>()
    /// Version that changes whenever `used` changes.
    private(set) var version: UInt32 = 0

    init(slotCount: Int) { counts.resize(to: slotCount, filling: 0) }

    var slotCount: Int { counts.count }

    func isUsed(_ slot: Int) -> Bool { counts[slot] > 0 }

    mutating func add(_ slot: Int) {
        counts[slot] += 1
        if counts[slot] == 1 { list() }
    }

    mutating func remove(_ slot: Int) {
        precondition(counts[slot] > 0, "a slot is left as often as it was taken")
        counts[slot] -= 1
        if counts[slot] == 0 { list() }
    }

    private mutating func list() {
        used.removeAll()
        for slot in 0..<counts.count where counts[slot] > 0 { used.append(UInt16(slot)) }
        version &+= 1
    }
}
