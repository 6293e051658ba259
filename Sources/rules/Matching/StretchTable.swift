import Policy

/// Range of column values by which a node is found. It is an element of a search tree.
struct Stretch: BitwiseCopyable {
    var low: UInt64
    var high: UInt64
    /// Maximum of the upper ends of this range and of all ranges below it in the tree.
    var reach: UInt64
    var node: UInt32
    var left: UInt32 = .none
    var right: UInt32 = .none
    /// Random number, at least as large as those of the elements below. Random ranks keep the tree balanced, whatever
    /// ranges clients choose.
    var rank: UInt32
    var operations: OperationSet

    func precedes(_ other: Stretch) -> Bool {
        if low != other.low { return low < other.low }
        if high != other.high { return high < other.high }
        return node < other.node
    }
}

/// Ranges of all columns, as a search tree for each column. A tree is ordered by the lower ends of its ranges, and each
/// element knows the highest upper end of its subtree. The cost of a search depends on how many ranges it finds.
struct StretchTable: ~Copyable {
    private(set) var stretches = Slab<Stretch>()
    private var chance: UInt64

    init(seed: UInt64) { chance = seed }

    private mutating func nextRank() -> UInt32 {
        chance = chance &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return UInt32(truncatingIfNeeded: chance >> 33)
    }

    /// Inserts a range into a tree. Returns the range's number and the new root of the tree.
    mutating func insert(
        _ range: ValueRange, _ node: UInt32, _ operations: OperationSet, at root: UInt32
    ) -> (
        UInt32, root: UInt32
    ) {
        let number = stretches.insert(
            Stretch(
                low: range.low, high: range.high, reach: range.high, node: node, rank: nextRank(),
                operations: operations))
        return (number, insert(number, at: root))
    }

    private mutating func insert(_ number: UInt32, at root: UInt32) -> UInt32 {
        guard root != .none else { return number }
        if stretches[number].rank > stretches[root].rank {
            (stretches[number].left, stretches[number].right) = split(root, by: stretches[number])
            measure(number)
            return number
        }
        if stretches[number].precedes(stretches[root]) {
            stretches[root].left = insert(number, at: stretches[root].left)
        } else {
            stretches[root].right = insert(number, at: stretches[root].right)
        }
        measure(root)
        return root
    }

    /// Splits the tree into the ranges that precede the stretch and the others.
    private mutating func split(_ root: UInt32, by stretch: Stretch) -> (UInt32, UInt32) {
        guard root != .none else { return (.none, .none) }
        if stretches[root].precedes(stretch) {
            let (before, behind) = split(stretches[root].right, by: stretch)
            stretches[root].right = before
            measure(root)
            return (root, behind)
        }
        let (before, behind) = split(stretches[root].left, by: stretch)
        stretches[root].left = behind
        measure(root)
        return (before, root)
    }

    /// Removes a range from a tree. Returns the new root of the tree.
    mutating func remove(_ number: UInt32, from root: UInt32) -> UInt32 {
        let stretch = stretches[number]
        let left = remove(stretch, number, from: root)
        stretches.remove(number)
        return left
    }

    private mutating func remove(_ stretch: Stretch, _ number: UInt32, from root: UInt32) -> UInt32 {
        precondition(root != .none, "a range stands in its tree")
        if root == number { return merge(stretch.left, stretch.right) }
        if stretch.precedes(stretches[root]) {
            stretches[root].left = remove(stretch, number, from: stretches[root].left)
        } else {
            stretches[root].right = remove(stretch, number, from: stretches[root].right)
        }
        measure(root)
        return root
    }

    private mutating func merge(_ before: UInt32, _ behind: UInt32) -> UInt32 {
        if before == .none { return behind }
        if behind == .none { return before }
        if stretches[before].rank > stretches[behind].rank {
            stretches[before].right = merge(stretches[before].right, behind)
            measure(before)
            return before
        }
        stretches[behind].left = merge(before, stretches[behind].left)
        measure(behind)
        return behind
    }

    private mutating func measure(_ number: UInt32) {
        let stretch = stretches[number]
        var reach = stretch.high
        if stretch.left != .none { reach = max(reach, stretches[stretch.left].reach) }
        if stretch.right != .none { reach = max(reach, stretches[stretch.right].reach) }
        stretches[number].reach = reach
    }

    /// Finds the nodes whose range contains the mapped value `number`. Nil is an unknown value: all nodes of the tree
    /// are found.
    func find(_ number: UInt64?, _ operation: OperationSet, from root: UInt32, into found: inout Pool<UInt32>) {
        var next = root
        while next != .none {
            let stretch = stretches[next]
            if let number, stretch.reach < number { return }
            find(number, operation, from: stretch.left, into: &found)
            // All ranges to the right begin at a higher number.
            if let number, stretch.low > number { return }
            if number.map({ $0 <= stretch.high }) ?? true, !stretch.operations.isDisjoint(with: operation) {
                found.append(stretch.node)
            }
            next = stretch.right
        }
    }

    /// Checks the order of a tree. Returns the number of its ranges.
    func check(_ root: UInt32) -> Int {
        guard root != .none else { return 0 }
        let stretch = stretches[root]
        var reach = stretch.high
        for (child, isLeft) in [(stretch.left, true), (stretch.right, false)] where child != .none {
            let below = stretches[child]
            precondition(below.rank <= stretch.rank, "a tree's ranks grow downwards")
            precondition(below.precedes(stretch) == isLeft, "ranges out of order")
            reach = max(reach, below.reach)
        }
        precondition(reach == stretch.reach, "a tree reaches elsewhere")
        return 1 + check(stretch.left) + check(stretch.right)
    }
}

/// Search tree with the ranges of one column.
struct StretchGroup: BitwiseCopyable {
    let slot: Int
    let form: OrderForm
    var root: UInt32 = .none
}
