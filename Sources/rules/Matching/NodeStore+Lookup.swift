import Bytes
import Policy

// The steps of a lookup, in order.
extension NodeStore {
    /// Adds the values of a row that may be keys to `lookups`, and prefetches the hash table's slots for them.
    @inline(__always)
    func note(
        _ table: UInt32, _ image: borrowing RowImage, of bytes: RawSpan, change: Int, into lookups: inout Pool<Lookup>
    ) {
        for index in 0..<tables[Int(table)].groups.count {
            let number = tables[Int(table)].groups[index]
            let group = groups[number]
            guard image.kind(group.slot) == .text else { continue }
            if group.part == .element {
                noteElements(number, image, of: bytes, change: change, into: &lookups)
                continue
            }
            let text = image.text(group.slot)
            if text.byteCount < group.prefix { continue }
            let value = group.part == .prefix ? text.extracting(first: group.prefix) : group.form.canonical(text)
            // The canonical form is always a part of the text itself, so its bytes are found in place.
            guard let place = bytes.byteOffsets(of: value) else { continue }
            let hash = group.hash(value)
            keys.prefetchSlot(hash)
            lookups.append(
                Lookup(
                    change: UInt32(change), group: number, hash: hash, start: UInt32(place.lowerBound),
                    length: UInt32(value.byteCount)))
        }
    }

    /// Adds each element of an array to `lookups`. An element that is written with escapes is never a key.
    @inline(never)
    private func noteElements(
        _ number: UInt32, _ image: borrowing RowImage, of bytes: RawSpan, change: Int, into lookups: inout Pool<Lookup>
    ) {
        let group = groups[number]
        EqualityKey.eachPlainElement(of: image.text(group.slot)) { element in
            guard let place = bytes.byteOffsets(of: element) else { return }
            let hash = group.hash(element)
            keys.prefetchSlot(hash)
            lookups.append(
                Lookup(
                    change: UInt32(change), group: number, hash: hash, start: UInt32(place.lowerBound),
                    length: UInt32(element.byteCount)))
        }
    }

    /// Searches the keys of all lookups, and prefetches the nodes that the keys lead to.
    mutating func find(_ bytes: RawSpan, _ batch: inout Batch) {
        for index in 0..<batch.lookups.count {
            batch.lookups[index].key = keys.candidate(batch.lookups[index].hash) ?? .none
        }
        for index in 0..<batch.lookups.count
        where batch.lookups[index].length > Key.inlineBytes && batch.lookups[index].key != .none {
            keys.prefetchContent(of: batch.lookups[index].key)
        }
        for index in 0..<batch.lookups.count where batch.lookups[index].key != .none {
            let lookup = batch.lookups[index]
            let value = lookup.value(in: bytes)
            let key = keys.find(lookup.hash, group: lookup.group, value, candidate: lookup.key) ?? .none
            batch.lookups[index].key = key
            guard key != .none else { continue }
            assert(keys[key].group == lookup.group, "a key of another column")
            if keys[key].settled == .none {
                batch.subjects[Int(lookup.change)].needsImage = true
            } else if keys[key].soleMember == .none {
                prefetchNode(keys[key].settled)
            }
        }
    }

    /// True if the table has predicates that every row may match, so that each row must be read.
    @inline(__always)
    func isScanned(_ table: UInt32) -> Bool {
        !tables[Int(table)].scan.isEmpty || !tables[Int(table)].ranges.isEmpty
    }

    /// Adds the nodes that a change matches without evaluating a predicate.
    @inline(__always)
    func addSettled(
        _ subject: Subject, _ lookups: Range<Int>, of batch: borrowing Batch, into matches: inout MatchBatch
    ) {
        addAlways(subject, into: &matches)
        for index in lookups {
            let number = batch.lookups[index].key
            guard number != .none else { continue }
            if !keys[number].settledOperations.isDisjoint(with: subject.operation) {
                assert(isOf(subject.table, keys[number].settled, .settled), "a key that leads to another table")
                matches.addCertain(keys[number].settled, soleMember: keys[number].soleMember)
            }
        }
    }

    /// Adds all nodes that a change matches.
    @inline(never)
    mutating func addAll(
        _ subject: Subject, _ lookups: Range<Int>, of batch: borrowing Batch, _ image: borrowing RowImage,
        into matches: inout MatchBatch
    ) {
        advanceStamp()
        ledger.beginChange()
        addSettled(subject, lookups, of: batch, into: &matches)
        for index in lookups {
            let number = batch.lookups[index].key
            guard number != .none, keys[number].settled == .none else { continue }
            follow(keys[number].first, subject.operation, image, into: &matches)
        }
        for index in 0..<tables[Int(subject.table)].ranges.count {
            let group = tables[Int(subject.table)].ranges[index]
            guard image.kind(group.slot) == .text else { continue }
            tryRanges(group, group.form.number(image.text(group.slot)), subject.operation, image, into: &matches)
        }
        tryAll(subject, image, into: &matches)
    }

    /// True if the node belongs to the table, has this access, and has members.
    private func isOf(_ table: UInt32, _ number: UInt32, _ access: Node.Access) -> Bool {
        nodes[number].table == table && nodes[number].access == access && nodes[number].members.count > 0
    }

    private mutating func tryRanges(
        _ group: StretchGroup, _ number: UInt64?, _ operation: OperationSet, _ image: borrowing RowImage,
        into matches: inout MatchBatch
    ) {
        ranged.removeAll()
        stretches.find(number, operation, from: group.root, into: &ranged)
        for index in 0..<ranged.count {
            assert(nodes[ranged[index]].access == .ranged, "a range that leads to what is found otherwise")
            judge(ranged[index], image, into: &matches)
        }
    }

    /// Adds the nodes whose key or range is on a column that the row lacks, because they may match. The method reads
    /// all keys of such a column, but is only called for a row that could not be completed.
    @inline(never)
    mutating func addUnreachable(_ subject: Subject, _ image: borrowing RowImage, into matches: inout MatchBatch) {
        for index in 0..<tables[Int(subject.table)].groups.count {
            let number = tables[Int(subject.table)].groups[index]
            guard image.kind(groups[number].slot) == .absent else { continue }
            for key in keys.keys.numbers where keys[key].group == number {
                addUnreachable(keys[key].first, subject.operation, image, into: &matches)
            }
        }
        for index in 0..<tables[Int(subject.table)].ranges.count {
            let group = tables[Int(subject.table)].ranges[index]
            guard image.kind(group.slot) == .absent else { continue }
            tryRanges(group, nil, subject.operation, image, into: &matches)
        }
    }

    private mutating func addUnreachable(
        _ first: UInt32, _ operation: OperationSet, _ image: borrowing RowImage, into matches: inout MatchBatch
    ) {
        var next = first
        while next != .none {
            let link = keys.link(next)
            next = link.next
            guard !link.operations.isDisjoint(with: operation), nodes[link.node].stamp != stamp else { continue }
            nodes[link.node].stamp = stamp
            if link.access == .settled {
                matches.addAsking(link.node)
            } else {
                judge(link.node, image, into: &matches)
            }
        }
    }

    private mutating func advanceStamp() {
        stamp &+= 1
        guard stamp == 0 else { return }
        // After four billion changes, old stamps would count as current ones, so all are reset.
        for number in 0..<nodes.limit { nodes[UInt32(number)].stamp = 0 }
        stamp = 1
    }

    @inline(__always)
    private func addAlways(_ subject: Subject, into matches: inout MatchBatch) {
        guard !tables[Int(subject.table)].always.isEmpty else { return }
        for set in OperationSet.sets where !set.isDisjoint(with: subject.operation) {
            for index in 0..<tables[Int(subject.table)].always.nodeCount(set) {
                matches.addCertain(tables[Int(subject.table)].always.node(set, index))
            }
        }
    }

    /// Adds the nodes of a key that the row matches.
    private mutating func follow(
        _ first: UInt32, _ operation: OperationSet, _ image: borrowing RowImage, into matches: inout MatchBatch
    ) {
        var next = first
        while next != .none {
            let link = keys.link(next)
            next = link.next
            guard !link.operations.isDisjoint(with: operation) else { continue }
            assert(nodes[link.node].access == link.access, "a link that says other than its node")
            if link.access == .settled {
                matches.addCertain(link.node)
            } else if nodes[link.node].stamp != stamp {
                nodes[link.node].stamp = stamp
                if link.access == .keyed {
                    assert(mayHold(link.node, image), "keys that do not say all")
                    matches.addCertain(link.node)
                } else {
                    judge(link.node, image, into: &matches)
                }
            }
        }
    }

    /// True if the predicate is true for the row, or if only PostgreSQL can decide it.
    private func mayHold(_ number: UInt32, _ image: borrowing RowImage) -> Bool {
        let verdict = predicates[nodes[number].predicate].verdict(on: image)
        return verdict == .yes || verdict == .ask
    }

    private mutating func tryAll(_ subject: Subject, _ image: borrowing RowImage, into matches: inout MatchBatch) {
        for set in OperationSet.sets where !set.isDisjoint(with: subject.operation) {
            for index in 0..<tables[Int(subject.table)].scan.nodeCount(set) {
                let number = tables[Int(subject.table)].scan.node(set, index)
                assert(isOf(subject.table, number, .scan), "a node of another table")
                judge(number, image, into: &matches)
            }
        }
    }

    private mutating func judge(_ number: UInt32, _ image: borrowing RowImage, into matches: inout MatchBatch) {
        let trial = nodes[number].predicate
        precondition(trial != .none, "a node without a predicate is not tried")
        guard ledger.take(predicates[trial].effort(on: image), predicates[trial].account) else {
            return matches.addSkipped(number)
        }
        switch predicates[trial].verdict(on: image) {
        case .yes: matches.addCertain(number)
        case .ask: matches.addAsking(number)
        case .no, .unknown, .notYes, .failed: break
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
        assert(!span.isEmpty, "a node that is gone")
        return unsafe _overrideLifetime(span, borrowing: self)
    }

    @inline(__always)
    private func prefetchNode(_ number: UInt32) {
        // SAFETY: the node is not read, only asked for.
        unsafe Prefetch.line(at: nodes.address(of: number))
    }

    func question(of number: UInt32) -> Question? { predicate(of: number)?.question }

    /// Returns the predicate of a node; nil if its key alone decides.
    func predicate(of number: UInt32) -> Predicate? {
        let predicate = nodes[number].predicate
        return predicate == .none ? nil : predicates[predicate].predicate
    }
}
