import Bytes
import Change
import Policy
import TestSupport
import Testing

@testable import Matching

/// Tests that compare the index with a search through all subscriptions, for random filters, rows, schemas and
/// removals.
@Suite(.within(minutes: 5)) struct ModelTests {
    @Test(arguments: seeds(6)) func `the index meets what a scan of all predicates meets`(seed: Seed) throws {
        var model = Model(seed: seed)
        for _ in 0..<40 {
            try model.changeSubscriptions()
            try model.matchSome()
        }
        model.index.checkInvariants()
        model.before.checkInvariants()
        model.removeAll()
        model.index.checkInvariants()
        model.before.checkInvariants()
        #expect(model.index.count == 0)
        #expect(model.metCount > 100, "a test of nothing")
    }

    @Test func `storms of adding and removing leave nothing behind`() throws {
        var random = SeededRandom(seed: 3)
        var index = Notes.index()
        var handles: [PredicateIndex.Handle] = []
        let filters = try (0..<500).map { number in
            let long = String(repeating: "x", count: number % 80)
            return try Notes.predicate(number % 3 == 0 ? "title=in.(a\(number),\(long)b)" : "title=eq.\(long)\(number)")
        }
        for round in 0..<10_000 {
            if Int.random(in: 0..<(round < 6_000 ? 3 : 5), using: &random) < 2 || handles.isEmpty {
                handles.append(
                    index.add(
                        table: 1, operations: random.pick([.all, .insert, [.update, .delete]]),
                        predicate: random.pick(filters), member: UInt32(round)))
            } else {
                index.remove(handles.remove(at: Int.random(in: 0..<handles.count, using: &random)))
            }
            if round % 1000 == 0 { index.checkInvariants() }
        }
        for handle in handles { index.remove(handle) }
        index.checkInvariants()
        #expect(index.store.nodes.count == 0)
        #expect(index.store.keys.count == 0)
        #expect(index.store.groups.count == 0)
        #expect(index.store.predicates.count == 0)
    }

    @Test(arguments: seeds(5)) func `numbers under hashes are those of a dictionary`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var slots = HashSlots()
        var model: [UInt32: UInt32] = [:]
        for number in 0..<3000 as Range<UInt32> {
            // There are few tags. Some are neighbours, and some are at the end of the number range.
            let tag = random.pick([0, 1, 2, 7, 8, 0xffff_fffe, .max, UInt32.random(in: 0...3000, using: &random)])
            slots.insert(tag, number)
            model[number] = tag
            while model.count > Int.random(in: 0...400, using: &random),
                let victim = model.randomElement(using: &random)
            {
                slots.remove(victim.value, victim.key)
                model[victim.key] = nil
            }
            if number % 100 == 0 { slots.checkInvariants() }
        }
        for tag in Set(model.values) {
            var found: Set<UInt32> = []
            var place = slots.start(tag)
            while let number = slots.next(tag, from: &place) { found.insert(number) }
            #expect(found == Set(model.filter { $0.value == tag }.keys))
        }
        #expect(slots.count == model.count)
    }

    @Test func `keys with the same hash are told apart by group and bytes`() throws {
        var keys = KeyTable()
        let node = Node(predicate: .none, table: 0, identity: 0, operations: .all, access: .settled)
        let values = ["", "a", "b", String(repeating: "c", count: 36), String(repeating: "c", count: 37)].map {
            Array($0.utf8)
        }
        var links: [UInt32] = []
        for (number, value) in values.enumerated() {
            for group in 0..<2 as Range<UInt32> {
                links.append(
                    keys.link(UInt32(number) * 2 + group, node, group: group, hash: 5, value.span.bytes))
            }
        }
        keys.checkInvariants()
        for (number, value) in values.enumerated() {
            for group in 0..<2 as Range<UInt32> {
                let key = keys.find(5, group: group, value.span.bytes)
                #expect(key.map { keys[$0].settled } == UInt32(number) * 2 + group)
                let candidate = keys.candidate(5) ?? .none
                let same = keys.find(5, group: group, value.span.bytes, candidate: candidate)
                #expect(same == key)
            }
            let none = keys.find(5, group: 2, value.span.bytes)
            #expect(none == nil)
        }
        for link in links { _ = keys.unlink(link) }
        keys.checkInvariants()
        #expect(keys.count == 0)
    }
}

/// Random subscriptions to two tables, with the expected results.
private struct Model: ~Copyable {
    struct Subscription {
        var filter: String
        var handle: PredicateIndex.Handle
        /// Handle in the index for old rows; nil if the filter reads the row before a change itself.
        var handleBefore: PredicateIndex.Handle?
        var table: UInt32
        var operations: OperationSet
        var asked: Predicate
        var policy: Predicate
        /// Filter and policy together.
        var predicate: Predicate
    }

    var index = PredicateIndex(maximumRelations: 5)
    /// Index of the same subscriptions for old rows.
    var before = PredicateIndex(judging: .old, maximumRelations: 5)
    var subscriptions: [UInt32: Subscription] = [:]
    var metCount = 0
    private var random: SeededRandom
    private var next: UInt32 = 0
    private let relations: [NotedRelation]

    init(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var relations: [NotedRelation] = []
        for fingerprint in 0..<9 as Range<UInt64> {
            var names = Notes.names + ["other", "more"]
            names.shuffle(using: &random)
            let count = random.pick([4, 8, 10])
            relations.append(
                NotedRelation(
                    fingerprint * 64, oid: UInt32(1 + fingerprint % 3), Array(names.prefix(count)),
                    key: random.pick([["id"], ["id", "title"], ["code"]])))
        }
        self.relations = relations
        self.random = random
        for table in 1...2 as ClosedRange<UInt32> {
            index.declare(table: table, columns: Notes.names)
            before.declare(table: table, columns: Notes.names)
        }
    }

    mutating func changeSubscriptions() throws {
        for _ in 0..<Int.random(in: 0...30, using: &random) {
            let filter = filter()
            let facts = random.pick([Notes.facts, Notes.facts, Notes.textual])
            // A filter on what changed may not have conditions that only PostgreSQL can decide.
            let isOfEvents = filter.contains("changed") || filter.contains("old.")
            guard let asked = isOfEvents ? try? Notes.predicate(filter, facts) : try Notes.predicate(filter, facts)
            else {
                continue
            }
            let policy = try Notes.policy(
                Int.random(in: 0..<3, using: &random) == 0 ? .constant([0x74], Notes.facts[5].type) : policy(2),
                asker: random.pick([1, 2]))
            let predicate = Predicate.both(asked, policy)
            let table: UInt32 = random.pick([1, 1, 2])
            let operations = random.pick(
                [.all, .all, .insert, .update, .delete, [.insert, .update]] as [OperationSet])
            let handle = index.add(table: table, operations: operations, predicate: predicate, member: next)
            let handleBefore =
                predicate.readsOldRow
                ? nil : before.add(table: table, operations: operations, predicate: predicate, member: next)
            subscriptions[next] = Subscription(
                filter: filter, handle: handle, handleBefore: handleBefore, table: table, operations: operations,
                asked: asked, policy: policy, predicate: predicate)
            next += 1
        }
        for member in subscriptions.keys.sorted() where Int.random(in: 0..<8, using: &random) == 0 {
            guard let removed = subscriptions.removeValue(forKey: member) else { continue }
            index.remove(removed.handle)
            if let handle = removed.handleBefore { before.remove(handle) }
        }
    }

    mutating func removeAll() {
        for subscription in subscriptions.values {
            index.remove(subscription.handle)
            if let handle = subscription.handleBefore { before.remove(handle) }
        }
        subscriptions = [:]
    }

    mutating func matchSome() throws {
        var changes: [RowChange] = []
        for _ in 0..<Int.random(in: 1...80, using: &random) { changes.append(change()) }
        let met = try index.matches(changes)
        #expect(met.count == changes.count)
        for (change, met) in zip(changes, met) {
            let expected = scan(change)
            metCount += expected.certain.count
            #expect(met == expected, "\(difference(met, expected)) \(change)")
        }
        for (change, met) in zip(changes, try before.matches(changes)) {
            let expected = change.operation == .insert ? Met() : scan(change, before: true)
            #expect(met == expected, "before: \(difference(met, expected)) \(change)")
        }
    }

    private func difference(_ met: Met, _ expected: Met) -> String {
        let members = Set(met.certain).symmetricDifference(expected.certain)
            .union(Set(met.asking).symmetricDifference(expected.asking))
        return members.sorted().map { "\($0): \(subscriptions[$0]?.filter ?? "?")" }.joined(separator: ", ")
    }

    /// Returns the expected matches. Evaluates every predicate on the row that the test knows.
    private func scan(_ change: RowChange, before: Bool = false) -> Met {
        var bytes: [UInt8] = []
        func place(_ cell: Cell?) -> ColumnPlace {
            guard case .text(let text)? = cell else {
                return cell == .null ? ColumnPlace(kind: .null, start: 0, length: 0) : .absent
            }
            bytes += text.utf8
            let length = UInt32(text.utf8.count)
            return ColumnPlace(kind: .text, start: UInt32(bytes.count) - length, length: length)
        }
        let places = Notes.names.map { place(before ? cellBefore($0, of: change) : cell($0, of: change)) }
        let oldPlaces = Notes.names.map { place(cellKnownBefore($0, of: change)) }
        var met = Met()
        for (member, subscription) in subscriptions {
            guard subscription.table == change.relation.relation.oid,
                !subscription.operations.isDisjoint(with: OperationSet(change.operation)),
                !before || !subscription.predicate.readsOldRow
            else { continue }
            var oldRow = RowImage.OldRow.none
            if change.operation == .delete { oldRow = .deleted }
            if change.operation == .update {
                let old = RowImage(bytes: bytes.span.bytes, places: oldPlaces.span)
                switch subscription.policy.verdict(on: old) {
                case .yes: oldRow = .known
                case .ask: oldRow = .undecided
                case .no, .unknown, .notYes, .failed: break
                }
            }
            let both = places + oldPlaces
            let row = RowImage(bytes: bytes.span.bytes, places: both.span, oldRow: oldRow)
            switch subscription.asked.verdict(on: row).and(subscription.policy.verdict(on: row)) {
            case .yes: met.certain.append(member)
            // A row that has none of the keys cannot match, unless the value of the key column is unknown.
            case .ask: if mayHold(subscription.predicate, row, before: before) { met.asking.append(member) }
            case .no, .unknown, .notYes, .failed: break
            }
        }
        met.certain.sort()
        met.asking.sort()
        return met
    }

    private func mayHold(_ predicate: Predicate, _ row: borrowing RowImage, before: Bool) -> Bool {
        // The filter and the policy may each be undecided, although together they exclude every row.
        if predicate.access == .never { return false }
        if case .within(let range) = predicate.access {
            if row.kind(range.slot) == .absent { return !before }
            return row.kind(range.slot) == .text && range.mayHold(row.text(range.slot))
        }
        guard case .anyOf(let keys) = predicate.access else { return true }
        if !before { for key in keys where row.kind(key.slot) == .absent { return true } }
        for key in keys where row.kind(key.slot) == .text {
            if key.part == .prefix {
                if row.text(key.slot).copied().starts(with: key.bytes) { return true }
            } else if key.part == .element {
                var isFound = false
                EqualityKey.eachPlainElement(of: row.text(key.slot)) {
                    isFound = isFound || $0.equals(key.bytes.span.bytes)
                }
                if isFound { return true }
            } else if key.form.equals(row.text(key.slot), canonical: key.bytes.span.bytes) {
                return true
            }
        }
        return false
    }

    /// Returns the known value of a column; nil if nothing is known.
    private func cell(_ name: String, of change: RowChange) -> Cell? {
        guard let column = change.relation.relation.columns.first(where: { $0.name == name }) else { return nil }
        let isKnown = change.oldImage == .full || change.oldImage == .key && column.isIdentity
        let old = isKnown ? change.old[name] ?? .null : .unchanged
        let cell = change.operation == .delete ? old : change.new[name] ?? .null
        let known = cell == .unchanged ? old : cell
        return known == .unchanged ? nil : known
    }

    /// Returns the value of a column before the change, as far as the change shows it.
    private func cellKnownBefore(_ name: String, of change: RowChange) -> Cell? {
        // There is no such row, so nothing of it is unknown.
        if change.operation == .insert { return .null }
        guard let column = change.relation.relation.columns.first(where: { $0.name == name }) else { return nil }
        switch (change.operation, change.oldImage) {
        case (.delete, _): return cell(name, of: change)
        case (.update, .full): return change.old[name] ?? .null
        case (.update, .key) where column.isIdentity: return change.old[name] ?? .null
        case (.update, .none) where column.isIdentity:
            let cell = change.new[name] ?? .null
            return cell == .unchanged ? nil : cell
        default: return nil
        }
    }

    private func cellBefore(_ name: String, of change: RowChange) -> Cell? {
        guard change.oldImage == .full, change.relation.relation.columns.contains(where: { $0.name == name }) else {
            return nil
        }
        let cell = change.old[name] ?? .null
        return cell == .unchanged ? nil : cell
    }

    private mutating func policy(_ depth: Int) -> Term {
        switch Int.random(in: 0..<(depth > 0 ? 12 : 8), using: &random) {
        case 0, 1: return Notes.equal("owner", owner())
        case 2: return Notes.tagged(random.pick(["tea", "milk", "a b", "q\"", "{", ""]))
        case 3: return Notes.term("done")
        case 4: return Notes.equal("title", title())
        case 5: return .isNull(Notes.term("title"))
        case 6: return Notes.equal("code", random.pick(["ab", "b "]))
        case 7: return Int.random(in: 0..<4, using: &random) == 0 ? .undecided : Notes.equal("amount", "1.50")
        case 8: return .not(policy(depth - 1))
        case 9: return .all([policy(depth - 1), policy(depth - 1)])
        default: return .any([policy(depth - 1), policy(depth - 1)])
        }
    }

    private mutating func change() -> RowChange {
        let relation = random.pick(relations)
        let operation = random.pick([Operation.insert, .update, .update, .delete])
        var change = RowChange(operation: operation, relation: relation)
        change.oldImage =
            switch operation {
            case .insert: .none
            case .delete: random.pick([.key, .full])
            default: random.pick([.none, .key, .full])
            }
        for column in relation.relation.columns {
            change.old[column.name] = value(column.name)
            let isUnchanged = operation == .update && Int.random(in: 0..<5, using: &random) == 0
            change.new[column.name] = isUnchanged ? .unchanged : value(column.name)
        }
        return change
    }

    private mutating func value(_ name: String) -> Cell {
        if Int.random(in: 0..<8, using: &random) == 0 { return .null }
        switch name {
        case "owner": return .text(owner())
        case "amount":
            return .text(
                random.pick(["1.5", "1.50", "0", "0.00", "2", "10", "-3.10", "NaN", "Infinity", "-Infinity", "?"]))
        case "score": return .text(random.pick(["\(Int.random(in: -3...12, using: &random))", "5", "none"]))
        case "code": return .text(random.pick(["ab", "ab   ", "b", ""]))
        case "done": return .text(random.pick(["t", "f"]))
        case "title": return .text(title())
        case "tags":
            return .text(
                random.pick(["{tea,milk}", "{}", "{NULL,tea}", "{\"a b\",\"q\\\"\"}", "{tea,tea}", "{\"{\",\"\"}"]))
        default: return .text("\(Int.random(in: 0...12, using: &random))")
        }
    }

    private mutating func owner() -> String {
        "00000000-0000-4000-8000-00000000000\(Int.random(in: 0...9, using: &random))"
    }

    private mutating func title() -> String {
        random.pick(["tea", "milk", "Tea", "ä", "äh", "te", String(repeating: "long", count: 12), "m"])
    }

    private mutating func filter() -> String {
        switch Int.random(in: 0..<12, using: &random) {
        case 0: ""
        case 1: "and=(\(condition()),\(condition()))"
        case 2: "or=(\(condition()),\(condition()))"
        case 3: "or=(\(condition()),and(\(condition()),\(condition())))"
        case 4: "and=(\(condition()),or(\(condition()),\(condition())))"
        default: whole(condition())
        }
    }

    private func whole(_ condition: String) -> String {
        if condition.hasPrefix("old.") { return "old." + whole(String(condition.dropFirst(4))) }
        return condition.first(where: { ".(".contains($0) }) == "("
            ? condition.replacing(first: "(", with: "=(") : condition.replacing(first: ".", with: "=")
    }

    private mutating func condition() -> String {
        let number = Int.random(in: 0...12, using: &random)
        let plain = String(repeating: "long", count: 12)
        switch Int.random(in: 0..<30, using: &random) {
        case 22: return "changed.\(random.pick(["title", "amount", "score", "id", "tags"]))"
        case 23: return "changed.not.\(random.pick(["title", "code"]))"
        case 24: return "changed.in.(title,score)"
        case 25: return "old.title.\(random.pick(["eq.tea", "in.(tea,milk)", "is.null", "not.eq.milk", "like.te%"]))"
        case 26: return "old.owner.eq.\(owner())"
        case 27: return "old.score.\(random.pick(["gt", "not.lte", "eq"])).\(number)"
        case 28: return "and(old.done.is.true,done.is.false)"
        case 29: return "or(old.id.eq.\(number),id.eq.\(number))"
        case 0: return "id.eq.\(number)"
        case 1: return "owner.eq.\(owner())"
        case 2: return "owner.in.(\(owner()),\(owner()))"
        case 3: return "title.eq.\(random.pick(["tea", "milk", plain]))"
        case 4: return "title.in.(tea,\(plain))"
        case 5: return "amount.eq.\(random.pick(["1.5", "0", "2"]))"
        case 6: return "code.eq.ab"
        case 7: return "score.gt.\(number)"
        case 8: return "score.in.(\(number),\(number / 2),3)"
        case 9: return "title.like.%e%"
        case 10: return "done.is.true"
        case 11: return "title.is.null"
        case 12: return "id.neq.\(number)"
        case 13:
            return
                "title.like.\(random.pick(["te%", "te_", "t%a", "T%", "longlonglonglonglonglonglonglonglong%", "ä%%", "te"]))"
        case 14: return "title.not.like.t%"
        case 15:
            return "amount.\(random.pick(["gt", "gte", "lt", "lte"])).\(random.pick(["1.5", "-3.1", "0", "-1", "1e1"]))"
        case 16: return "score.not.\(random.pick(["gt", "gte", "lt", "lte"])).\(number)"
        case 17: return "and(score.gte.\(number),score.lt.\(number + 2))"
        case 18: return "or(score.lt.\(number - 6),score.gt.\(number + 6),score.lte.-1)"
        case 19: return "and(score.gte.\(number),amount.lt.2,id.lte.9)"
        case 20: return "score.\(random.pick(["gte", "lt", "lte"])).\(number)"
        default: return "title.\(random.pick(["gt", "lt"])).m"
        }
    }
}

extension Verdict {
    /// Returns SQL's AND for a context in which only yes counts. After an error or NULL, PostgreSQL's answer is not
    /// needed.
    fileprivate func and(_ other: Verdict) -> Verdict {
        for verdict in [Verdict.no, .failed, .unknown, .notYes, .ask] where self == verdict || other == verdict {
            return verdict
        }
        return .yes
    }
}

extension String {
    fileprivate func replacing(first character: Character, with other: String) -> String {
        guard let place = firstIndex(of: character) else { return self }
        return String(self[..<place]) + other + String(self[index(after: place)...])
    }
}
