import Bytes
import Change
import Policy
import TestSupport
import Testing

@testable import Matching

@Suite(.within(minutes: 5)) struct PredicateIndexTests {
    @Test func `equal filters share a node and different ones do not meet`() throws {
        var index = Notes.index()
        let title = try Notes.predicate("title=eq.tea")
        let first = index.add(table: 1, operations: .all, predicate: title, member: 1)
        _ = index.add(table: 1, operations: .all, predicate: title, member: 2)
        _ = index.add(table: 1, operations: .insert, predicate: title, member: 3)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=eq.milk"), member: 4)
        #expect(index.store.nodes.count == 3)
        #expect(try index.certain(Notes.insert(["title": .text("tea")])) == [1, 2, 3])
        #expect(try index.certain(Notes.insert(["title": .text("milk")])) == [4])
        #expect(try index.certain(Notes.insert(["title": .null])) == [])
        index.remove(first)
        #expect(try index.certain(Notes.insert(["title": .text("tea")])) == [2, 3])
        index.checkInvariants()
    }

    @Test func `an element of an array is found, once, and by nobody who means another`() throws {
        var index = Notes.index()
        for (member, value) in ["tea", "milk", "a b", "", "NULL", "q\"uote"].enumerated() {
            let policy = try Notes.policy(Notes.tagged(value))
            #expect((policy.access == .scan) == value.contains("\""))
            _ = index.add(table: 1, operations: .all, predicate: policy, member: UInt32(member))
        }
        #expect(try index.certain(Notes.insert(["tags": .text("{tea,\"a b\",tea,NULL}")])) == [0, 2])
        #expect(try index.certain(Notes.insert(["tags": .text("{\"\",\"NULL\"}")])) == [3, 4])
        #expect(try index.certain(Notes.insert(["tags": .text("{{milk,tea},{\"q\\\"uote\",x}}")])) == [0, 1, 5])
        #expect(try index.certain(Notes.insert(["tags": .text("tea")])) == [])
        #expect(try index.certain(Notes.insert(["tags": .null, "title": .text("tea")])) == [])
        index.checkInvariants()
    }

    @Test func `holders of equal policies share a node unless they may ask`() throws {
        var index = Notes.index()
        let owner = Notes.equal("owner", "00000000-0000-4000-8000-000000000001")
        for asker in 1...2 as ClosedRange<UInt32> {
            for term in [owner, .any([owner, Notes.term("done")]), .all([owner, .undecided])] {
                _ = index.add(
                    table: 1, operations: .all, predicate: try Notes.policy(term, asker: asker), member: asker)
            }
        }
        #expect(index.store.nodes.count == 4)
        index.checkInvariants()
    }

    @Test func `columns that cannot decide any more are let go of with their node`() throws {
        var index = Notes.index()
        let boolean = Notes.facts[5].type
        let open = Term.all([Notes.term("done"), .constant(nil, boolean)])
        let policy = try Notes.policy(.any([Notes.equal("title", "tea"), open]))
        #expect(policy.isDecidedByAccess && policy.slots.count == 2)
        let handle = index.add(table: 1, operations: .all, predicate: policy, member: 1)
        #expect(try index.certain(Notes.insert(["title": .text("tea"), "done": .text("f")])) == [1])
        #expect(try index.certain(Notes.insert(["title": .text("milk"), "done": .text("t")])) == [])
        index.remove(handle)
        index.checkInvariants()
        #expect(index.store.tables[0].use.used.count == 0)
    }

    @Test func `a node is found by what it wants, whoever made it`() throws {
        let seed: UInt64 = 17
        func identity(_ text: String, _ seed: UInt64) throws -> UInt32 {
            Wish(table: 0, operations: .all, predicate: try Notes.predicate(text)).identity(seed: seed)
        }
        let scanned = "title=neq.tea,amount=gt.3"
        #expect(try identity(scanned, seed) == identity("amount=gt.3.0,title=not.eq.tea", seed))
        #expect(try identity(scanned, seed) != identity(scanned, seed + 1))
        #expect(try identity(scanned, seed) != identity("title=neq.tea,amount=gt.4", seed))
        #expect(try identity(scanned, seed) != identity("title=eq.tea,amount=gt.3", seed))
    }

    @Test func `a policy is held against what was before a change`() throws {
        var index = Notes.index()
        let mine = "00000000-0000-4000-8000-000000000001"
        let owner = try Notes.policy(Notes.equal("owner", mine))
        _ = index.add(table: 1, operations: .all, predicate: owner, member: 1)
        let (row, others) = (["owner": Cell.text(mine)], ["owner": Cell.text(String(mine.dropLast()) + "2")])
        let cases: [(RowChange, Verdict)] = [
            (RowChange(operation: .update, relation: Notes.relation, oldImage: .full, old: row, new: others), .yes),
            (RowChange(operation: .update, relation: Notes.relation, oldImage: .full, old: others, new: row), .no),
            (RowChange(operation: .update, relation: Notes.relation, oldImage: .full, old: [:], new: row), .unknown),
            (RowChange(operation: .update, relation: Notes.relation, oldImage: .key, old: row, new: row), .ask),
            (RowChange(operation: .update, relation: Notes.relation, new: row), .ask),
            (RowChange(operation: .delete, relation: Notes.relation, oldImage: .full, old: row), .yes),
        ]
        for (change, expected) in cases {
            _ = try index.matches([change])
            let bytes = Stored.part([change])
            var part = try TransactionPart(bytes.span.bytes)
            guard let stored = try part.next() else { continue }
            let verdict = try index.verdict(of: owner, onOldImageOf: stored)
            #expect(verdict == expected)
            let always = try index.verdict(of: .always, onOldImageOf: stored)
            #expect(always == .yes)
            let unseen = try index.verdict(of: try Notes.policy(Notes.term("done")), onOldImageOf: stored)
            #expect(unseen == .ask, "a column that nobody looks at is not read")
            let texts = try index.texts(of: [1], in: stored, image: .old)
            let known: ColumnText =
                switch expected {
                case .yes: .text(Array(mine.utf8))
                case .no: .text(Array((mine.dropLast() + "2").utf8))
                case .unknown: .null
                default: .absent
                }
            #expect(texts == [known])
        }
    }

    @Test func `an operation meets those who want it`() throws {
        var index = Notes.index()
        for (member, operations) in [OperationSet.insert, .update, .delete, .all, []].enumerated() {
            for (place, filter) in ["", "title=eq.tea", "score=gt.5", "title=in.(tea,milk)"].enumerated() {
                _ = index.add(
                    table: 1, operations: operations, predicate: try Notes.predicate(filter),
                    member: UInt32(member * 10 + place))
            }
        }
        let row: [String: Cell] = ["id": .text("1"), "title": .text("tea"), "score": .text("6")]
        let update = RowChange(operation: .update, relation: Notes.relation, new: row)
        let delete = RowChange(operation: .delete, relation: Notes.relation, oldImage: .full, old: row)
        #expect(try index.certain(Notes.insert(row)) == [0, 1, 2, 3, 30, 31, 32, 33])
        #expect(try index.certain(update) == [10, 11, 12, 13, 30, 31, 32, 33])
        #expect(try index.certain(delete) == [20, 21, 22, 23, 30, 31, 32, 33])
        index.checkInvariants()
    }

    @Test func `a node reached by two keys of a row is met once`() throws {
        var index = Notes.index()
        let either = try Notes.predicate("or=(title.eq.tea,code.eq.tea)")
        _ = index.add(table: 1, operations: .all, predicate: either, member: 1)
        let row = Notes.insert(["title": .text("tea"), "code": .text("tea  "), "owner": .null])
        #expect(try index.matches([row, row]) == [Met(certain: [1]), Met(certain: [1])])
    }

    @Test func `equal values in other writing are met, in every form at once`() throws {
        var index = Notes.index()
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("amount=eq.1.5"), member: 1)
        _ = index.add(
            table: 1, operations: .all, predicate: try Notes.predicate("amount=eq.1.50", Notes.textual), member: 2)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("code=eq.ab"), member: 3)
        #expect(try index.certain(Notes.insert(["amount": .text("1.500"), "code": .text("ab   ")])) == [1, 3])
        #expect(try index.certain(Notes.insert(["amount": .text("1.50"), "code": .text("abc")])) == [1, 2])
    }

    @Test func `a delete is judged by what the old image holds`() throws {
        var index = Notes.index()
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("id=eq.5"), member: 1)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=eq.tea"), member: 2)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=is.null"), member: 3)
        _ = index.add(table: 1, operations: .all, predicate: .always, member: 4)
        let key = RowChange(operation: .delete, relation: Notes.relation, oldImage: .key, old: ["id": .text("5")])
        #expect(try index.certain(key) == [1, 4], "a NULL in an image of the key means unknown")
        var full = key
        full.oldImage = .full
        full.old["title"] = .text("tea")
        #expect(try index.certain(full) == [1, 2, 4])
    }

    @Test func `rows as they were are known by their identity, which an update need not repeat`() throws {
        var index = PredicateIndex(judging: .oldAsKnown, maximumRelations: 5)
        index.declare(table: 1, columns: Notes.names)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("id=eq.5"), member: 1)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=eq.tea"), member: 2)
        let key = RowChange(operation: .delete, relation: Notes.relation, oldImage: .key, old: ["id": .text("5")])
        #expect(try index.certain(key) == [1])
        let row: [String: Cell] = ["id": .text("5"), "title": .text("tea")]
        #expect(try index.certain(Notes.insert(row)) == [], "it was not there")
        var update = RowChange(operation: .update, relation: Notes.relation, new: row)
        #expect(try index.certain(update) == [1], "of the title nobody knows what it was")
        update.oldImage = .key
        update.old = ["id": .text("4")]
        #expect(try index.certain(update) == [])
        update.oldImage = .full
        update.old = row
        update.new = ["id": .text("6")]
        #expect(try index.certain(update) == [1, 2])
    }

    @Test func `a large value that did not change is taken from the old image`() throws {
        var index = Notes.index()
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=eq.tea"), member: 1)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=neq.milk"), member: 2)
        let new: [String: Cell] = ["id": .text("5"), "title": .unchanged]
        var update = RowChange(operation: .update, relation: Notes.relation, new: new)
        #expect(try index.matches([update]) == [Met(certain: [], asking: [1, 2])], "nobody knows the value")
        update.oldImage = .key
        update.old = ["id": .text("4")]
        #expect(try index.matches([update]) == [Met(certain: [], asking: [1, 2])])
        update.oldImage = .full
        update.old = ["id": .text("4"), "title": .text("tea")]
        #expect(try index.certain(update) == [1, 2])
    }

    @Test func `changes that lack what somebody looks at can be left, and meet nobody then`() throws {
        var index = Notes.index()
        _ = index.add(table: 1, operations: .all, predicate: .always, member: 1)
        index.noteRelation(Notes.relation.fingerprint, Notes.relation.relation)
        let insert = Notes.insert(["id": .text("5")])
        let update = RowChange(
            operation: .update, relation: Notes.relation, new: ["id": .text("5"), "title": .unchanged])
        let delete = RowChange(operation: .delete, relation: Notes.relation, oldImage: .key, old: ["id": .text("5")])
        #expect(try index.left([insert, update, delete]) == [false, false, false], "nobody looks at anything")
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("id=eq.5"), member: 2)
        #expect(try index.left([insert, update, delete]) == [false, false, false])
        _ = index.add(table: 1, operations: .insert, predicate: try Notes.predicate("title=eq.tea"), member: 3)
        #expect(try index.left([insert, update, delete]) == [false, true, true])
        #expect(try index.matches([update])[0] == Met(certain: [1, 2], asking: []))
        _ = index.add(table: 1, operations: .update, predicate: try Notes.predicate("title=like.%e%"), member: 4)
        #expect(try index.left([insert, update, delete]) == [false, true, true])
        #expect(try index.matches([update])[0] == Met(certain: [1, 2], asking: [4]))
    }

    @Test func `what only PostgreSQL can decide is asked`() throws {
        var index = Notes.index()
        let ordered = try Notes.predicate("title=gt.m")
        let both = try Notes.predicate("and=(id.eq.1,title.gt.m)")
        _ = index.add(table: 1, operations: .all, predicate: ordered, member: 1)
        _ = index.add(table: 1, operations: .all, predicate: both, member: 2)
        let row = Notes.insert(["id": .text("1"), "title": .text("tea")])
        #expect(try index.matches([row]) == [Met(asking: [1, 2])])
        let other = Notes.insert(["id": .text("2"), "title": .text("tea")])
        #expect(try index.matches([other]) == [Met(asking: [1])])

        let bytes = Stored.part([row])
        var part = try TransactionPart(bytes.span.bytes)
        var batch = MatchBatch()
        _ = try index.match(&part, into: &batch)
        let asking = batch.asking(of: 0)
        var questions: Set<Question> = []
        for place in asking.indices {
            if let question = index.question(of: asking[place]) { questions.insert(question) }
        }
        #expect(questions == [try #require(ordered.question), try #require(both.question)])
    }

    @Test func `columns are found by name in whatever schema the row had`() throws {
        var index = Notes.index()
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=eq.tea"), member: 1)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("score=gt.5"), member: 2)
        let row: [String: Cell] = ["title": .text("tea"), "score": .text("6"), "gone": .text("x")]
        let reordered = NotedRelation(1, ["gone", "score", "id", "title"])
        let without = NotedRelation(2, ["id", "score", "gone"])
        let elsewhere = NotedRelation(3, oid: 2, Notes.names)
        let changes = [reordered, without, elsewhere, Notes.relation].map {
            RowChange(operation: .insert, relation: $0, new: row)
        }
        #expect(
            try index.matches(changes) == [
                Met(certain: [1, 2]), Met(certain: [2], asking: [1]), Met(), Met(certain: [1, 2]),
            ])
    }

    @Test func `a table declared again forgets what was subscribed to it`() throws {
        var index = Notes.index()
        let old = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=eq.tea"), member: 1)
        let row = Notes.insert(["title": .text("tea")])
        #expect(try index.certain(row) == [1])
        index.declare(table: 1, columns: ["title"])
        #expect(try index.certain(row) == [])
        let facts = Notes.facts.filter { $0.name == "title" }
        let title = try Notes.predicate("title=eq.tea", facts)
        _ = index.add(table: 1, operations: .all, predicate: title, member: 2)
        #expect(try index.certain(row) == [2])
        index.checkInvariants()
        index.remove(old)
        index.checkInvariants()
        #expect(index.count == 1)
        #expect(try index.certain(row) == [2])
        index.forget(table: 1)
        #expect(try index.certain(row) == [])
    }

    @Test func `a relation that was met before its table was subscribed to is asked for again`() throws {
        var index = PredicateIndex(maximumRelations: 2)
        let row = Notes.insert(["title": .text("tea")])
        #expect(try index.certain(row) == [])
        index.declare(table: 1, columns: Notes.names)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=eq.tea"), member: 1)
        #expect(try index.certain(row) == [1])
        // These are more schemas than the index remembers.
        let many = (0..<9).map { NotedRelation($0, Notes.names) }
        let changes = many.map { RowChange(operation: .insert, relation: $0, new: row.new) }
        #expect(try index.matches(changes + [row] + changes) == Array(repeating: Met(certain: [1]), count: 19))
    }

    @Test func `truncates and messages meet nobody`() throws {
        var index = Notes.index()
        _ = index.add(table: 1, operations: .all, predicate: .always, member: 1)
        var writer = ByteWriter()
        let info = TransactionInfo(xid: 7, commitLSN: .zero, endLSN: .zero, commitTime: 0)
        TransactionCodec.begin(info, firstIndex: 0, to: &writer)
        let nothing: [UInt8] = []
        for operation in [Operation.truncate, .message] {
            TransactionCodec.append(
                operation, relation: 0, oldImage: .none, old: nothing.span.bytes, new: nothing.span.bytes, to: &writer)
        }
        TransactionCodec.finish(endLSN: .zero, changeCount: 2, in: &writer)
        let bytes = writer.bytes.copied()
        var part = try TransactionPart(bytes.span.bytes)
        var batch = MatchBatch()
        let outcome = try index.match(&part, into: &batch)
        let (count, hasMatches) = (batch.changeCount, batch.hasMatches)
        #expect(outcome == .judged)
        #expect(count == 2)
        #expect(!hasMatches)
    }

    @Test func `cut and broken images are refused and nothing breaks`() throws {
        var index = Notes.index()
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("score=gt.5"), member: 1)
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate("title=eq.tea"), member: 2)
        index.noteRelation(Notes.relation.fingerprint, Notes.relation.relation)
        let row: [String: Cell] = ["id": .text("1"), "title": .unchanged, "score": .text("6")]
        let update = RowChange(
            operation: .update, relation: Notes.relation, oldImage: .full, old: ["title": .text("tea")], new: row)
        let whole = Stored.part([update])
        var refused = 0
        for place in 40..<whole.count {
            var bytes = whole
            bytes[place] = 0xff
            do {
                var part = try TransactionPart(bytes.span.bytes)
                var batch = MatchBatch()
                while case .judged = try index.match(&part, into: &batch), batch.changeCount > 0 {}
            } catch { refused += 1 }
        }
        #expect(refused > 10)
        #expect(try index.certain(update) == [1, 2])
    }
}
