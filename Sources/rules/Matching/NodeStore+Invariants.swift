extension NodeStore {
    /// Checks that all references within the store agree in both directions. Tests use it.
    func checkInvariants() {
        identities.checkInvariants()
        keys.checkInvariants()
        var members = 0
        var tableNodes = [Int](repeating: 0, count: tables.count)
        var links = 0
        for number in liveNodes() {
            let node = nodes[number]
            members += Int(node.members.count)
            tableNodes[Int(node.table)] += 1
            precondition(node.members.count > 0, "a node without members")
            checkMembers(number)
            links += checkPlace(number)
        }
        precondition(members == memberCount, "members and handles differ")
        precondition(links == keys.linkCount, "links that belong to no node")
        for table in 0..<tables.count { checkTable(table, nodeCount: tableNodes[table]) }
        var ranges = 0
        for table in 0..<tables.count {
            for index in 0..<tables[table].ranges.count {
                let group = tables[table].ranges[index]
                precondition(group.root != .none, "ranges of a column that has none")
                precondition(tables[table].use.isUsed(group.slot), "a column with ranges that is not read")
                ranges += stretches.check(group.root)
            }
        }
        precondition(ranges == stretches.stretches.count, "ranges that stand in no tree")
    }

    private func liveNodes() -> [UInt32] {
        var live: Set<UInt32> = []
        for number in handles.numbers { live.insert(handles[number].node) }
        precondition(live.count == nodes.count && live.count == identities.count, "nodes that nobody holds")
        return live.sorted()
    }

    private func checkMembers(_ number: UInt32) {
        for position in 0..<nodes[number].members.count {
            let place = handles[nodes[number].members[position].handle]
            precondition(place.node == number && place.position == position, "a handle that points elsewhere")
        }
    }

    /// Checks that the node is where its `place` refers to. Returns the number of its links.
    private func checkPlace(_ number: UInt32) -> Int {
        let node = nodes[number]
        switch node.access {
        case .never: return 0
        case .always:
            precondition(tables[Int(node.table)].always.node(node.operations, Int(node.place)) == number)
            return 0
        case .scan:
            precondition(tables[Int(node.table)].scan.node(node.operations, Int(node.place)) == number)
            return 0
        case .ranged:
            precondition(stretches.stretches[node.place].node == number, "a range of another node")
            return 0
        case .settled, .keyed, .keyedThenJudged: return checkLinks(number)
        }
    }

    private func checkLinks(_ number: UInt32) -> Int {
        var count = 0
        var next = nodes[number].place
        while next != .none {
            precondition(keys.link(next).node == number, "a link of another node")
            checkSoleMember(number, keys.link(next).key)
            next = keys.link(next).nextOfNode
            count += 1
        }
        return count
    }

    private func checkSoleMember(_ number: UInt32, _ key: UInt32) {
        guard keys[key].settled == number, keys[key].soleMember != .none else { return }
        let members = nodes[number].members
        precondition(members.count == 1 && members[0].member == keys[key].soleMember, "a key names another member")
    }

    private func checkTable(_ table: Int, nodeCount: Int) {
        precondition(tables[table].nodeCount == nodeCount, "a table counts other nodes")
        for index in 0..<tables[table].groups.count {
            let group = tables[table].groups[index]
            precondition(Int(groups[group].table) == table && groups[group].keyCount > 0, "a group without keys")
            precondition(groups[group].keyCount == keys.keyCount(of: group), "a group counts other keys")
            precondition(tables[table].use.isUsed(groups[group].slot), "a looked-up column that is not read")
        }
    }
}
