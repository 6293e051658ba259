import Bytes
import Change

/// Maps columns of a stored row image to slots of a table: by name, because a log holds rows of schemas whose
/// columns stood elsewhere.
struct RelationMap: ~Copyable {
    /// The use of one column of an image.
    struct Step: BitwiseCopyable {
        private static let skipped: UInt16 = .max
        private var target: UInt16
        /// An old image that holds only the key has a value for it.
        let isIdentity: Bool

        init(slot: Int?, isIdentity: Bool) {
            target = slot.map { UInt16($0) } ?? Self.skipped
            self.isIdentity = isIdentity
        }

        /// The slot the value belongs to; nil when nobody asks for it.
        var slot: Int? { target == Self.skipped ? nil : Int(target) }
    }

    /// The table whose rows these are, or nil when nobody is subscribed to it.
    let table: UInt32?
    let oid: UInt32
    /// The slot of each column, whether it is used or not.
    private var columns = Pool<Step>()
    /// The columns up to the last one that any predicate looks at.
    private(set) var steps = Pool<Step>()
    /// Predicates look at columns that rows of the schema do not have.
    private(set) var lacksColumns = false
    private var plannedFor: UInt32?

    /// Columns in `foreign`, by place, are taken for absent.
    init(table: UInt32?, relation: Relation, slots: [String: Int], foreign: Set<Int> = []) {
        self.table = table
        oid = relation.oid
        for (index, column) in relation.columns.enumerated() {
            let slot = foreign.contains(index) ? nil : slots[column.name]
            columns.append(Step(slot: slot, isIdentity: column.isIdentity))
        }
    }

    /// Says anew which columns are read, when the table's predicates look at others than they did.
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

/// Counts the predicates of a table that look at each of its slots.
struct SlotUse: ~Copyable {
    private var counts = Pool<UInt32>()
    private(set) var used = Pool<UInt16>()
    /// Another one whenever `used` is another.
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
