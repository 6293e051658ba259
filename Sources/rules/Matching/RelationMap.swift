import Bytes
import Change

/// Map by which the columns of a stored row are assigned to the table's column slots, by name. The log may have rows
/// with older schemas, whose columns have another order.
struct RelationMap: ~Copyable {
    /// Column of a stored row.
    struct Step: BitwiseCopyable {
        private static let skipped: UInt16 = .max
        private var target: UInt16
        /// True if the column belongs to the identity, so that an old image with only the identity contains it.
        let isIdentity: Bool

        init(slot: Int?, isIdentity: Bool) {
            target = slot.map { UInt16($0) } ?? Self.skipped
            self.isIdentity = isIdentity
        }

        /// Column slot that gets the value; nil if no predicate reads it.
        var slot: Int? { target == Self.skipped ? nil : Int(target) }
    }

    /// Number of the subscribed table; nil if there are no subscriptions.
    let table: UInt32?
    let oid: UInt32
    /// All columns of the stored row, whether predicates read them or not.
    private var columns = Pool<Step>()
    /// Columns of the stored row up to the last one that a predicate reads.
    private(set) var steps = Pool<Step>()
    /// True if predicates read a column that rows of this schema lack.
    private(set) var lacksColumns = false
    /// Version of the `SlotUse` for which `steps` was computed.
    private var plannedFor: UInt32?

    /// Creates the map. Columns whose index is in `foreign` count as absent.
    init(table: UInt32?, relation: Relation, slots: [String: Int], foreign: Set<Int> = []) {
        self.table = table
        oid = relation.oid
        for (index, column) in relation.columns.enumerated() {
            let slot = foreign.contains(index) ? nil : slots[column.name]
            columns.append(Step(slot: slot, isIdentity: column.isIdentity))
        }
    }

    /// Computes again which columns are read, if the table's predicates have changed in that respect.
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
        assert(held <= use.ofRowCount, "one slot filled from two columns")
        lacksColumns = held < use.ofRowCount
        plannedFor = use.version
    }
}

/// Counts of how many of a table's nodes read each column slot. The slots of the row before a change follow those of the
/// row. A node that reads a column of the row before the change also reads the column of the row.
struct SlotUse: ~Copyable {
    private var counts = Pool<UInt32>()
    /// Number of the table's columns, and the first slot of the row before a change.
    let columnCount: Int
    /// Slots that some node reads, in ascending order.
    private(set) var used = Pool<UInt16>()
    /// Number of used slots that are the row's; those of the row before the change follow them.
    private(set) var ofRowCount = 0
    /// Version that changes whenever `used` changes.
    private(set) var version: UInt32 = 0

    init(columnCount: Int) {
        self.columnCount = columnCount
        counts.resize(to: 2 * columnCount, filling: 0)
    }

    var slotCount: Int { counts.count }

    /// True if some node reads the row before the change.
    @inline(__always)
    var readsOldRow: Bool { ofRowCount < used.count }

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
        ofRowCount = 0
        while ofRowCount < used.count, used[ofRowCount] < columnCount { ofRowCount += 1 }
        version &+= 1
    }
}
