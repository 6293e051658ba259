import Bytes
import Policy

extension NodeStore {
    /// Everything that wants a row of a table, after one of these operations.
    @inline(__always)
    mutating func collect(
        _ table: UInt32, _ operation: OperationSet, _ image: borrowing RowImage, into list: inout MatchList
    ) {
        advanceStamp()
        collectAlways(table, operation, into: &list)
        lookUp(table, operation, image, into: &list)
        tryAll(table, operation, image, into: &list)
    }

    @inline(__always)
    private mutating func advanceStamp() {
        stamp &+= 1
        if stamp == 0 { forgetStamps() }
    }

    /// After four billion changes old stamps would look like new ones.
    @inline(never)
    private mutating func forgetStamps() {
        for number in 0..<nodes.limit { nodes[UInt32(number)].stamp = 0 }
        stamp = 1
    }

    @inline(__always)
    private func collectAlways(_ table: UInt32, _ operation: OperationSet, into list: inout MatchList) {
        guard !tables[Int(table)].always.isEmpty else { return }
        for set in OperationSet.sets where !set.isDisjoint(with: operation) {
            for index in 0..<tables[Int(table)].always.nodeCount(set) {
                list.certainNodes.append(MatchedNode(number: tables[Int(table)].always.node(set, index)))
            }
        }
    }

    @inline(__always)
    private mutating func lookUp(
        _ table: UInt32, _ operation: OperationSet, _ image: borrowing RowImage, into list: inout MatchList
    ) {
        for index in 0..<tables[Int(table)].groups.count {
            let number = tables[Int(table)].groups[index]
            let group = groups[number]
            guard image.kind(group.slot) == .text else { continue }
            let value = group.form.canonical(image.text(group.slot))
            guard let key = keys.find(group.hash(value), group: number, value) else { continue }
            if keys[key].settled == .none {
                follow(keys[key].first, operation, image, into: &list)
            } else if !keys[key].settledOperations.isDisjoint(with: operation) {
                list.certainNodes.append(MatchedNode(number: keys[key].settled))
            }
        }
    }

    /// Visits the nodes of a key.
    @inline(never)
    private mutating func follow(
        _ first: UInt32, _ operation: OperationSet, _ image: borrowing RowImage, into list: inout MatchList
    ) {
        var next = first
        while next != .none {
            let link = keys.link(next)
            next = link.next
            guard !link.operations.isDisjoint(with: operation) else { continue }
            if link.access == .settled {
                list.certainNodes.append(MatchedNode(number: link.node))
            } else if nodes[link.node].stamp != stamp {
                nodes[link.node].stamp = stamp
                judge(link.node, isDecided: link.access == .keyed, image, into: &list)
            }
        }
    }

    private func judge(
        _ number: UInt32, isDecided: Bool, _ image: borrowing RowImage, into list: inout MatchList
    ) {
        switch isDecided ? .yes : predicates[nodes[number].predicate].verdict(on: image) {
        case .yes: list.certainNodes.append(MatchedNode(number: number))
        case .ask: list.askingNodes.append(MatchedNode(number: number))
        case .no, .unknown: break
        }
    }

    @inline(__always)
    private func tryAll(
        _ table: UInt32, _ operation: OperationSet, _ image: borrowing RowImage, into list: inout MatchList
    ) {
        guard !tables[Int(table)].scan.isEmpty else { return }
        for set in OperationSet.sets where !set.isDisjoint(with: operation) {
            for index in 0..<tables[Int(table)].scan.nodeCount(set) {
                judge(tables[Int(table)].scan.node(set, index), isDecided: false, image, into: &list)
            }
        }
    }
}

extension NodeStore {
    @_lifetime(borrow self)
    func members(of number: UInt32) -> Span<UInt32> {
        // SAFETY: the list is the node's first field. The node stays where it is while the store is borrowed, and the
        // span cannot outlive the borrow.
        let list = unsafe UnsafeRawPointer(nodes.address(of: number)).assumingMemoryBound(to: MemberList.self)
        let span = unsafe Span(_unsafeElements: MemberList.members(list))
        return unsafe _overrideLifetime(span, borrowing: self)
    }

    func question(of number: UInt32) -> Question? {
        let predicate = nodes[number].predicate
        return predicate == .none ? nil : predicates[predicate].question
    }
}
