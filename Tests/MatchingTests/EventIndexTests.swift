import Change
import Matching
import Policy
import TestSupport
import Testing

/// Tests of the index with filters that read the row before a change.
@Suite(.within(minutes: 5)) struct EventIndexTests {
    private static func update(_ old: [String: Cell], _ new: [String: Cell], _ image: OldImage = .full) -> RowChange {
        RowChange(operation: .update, relation: Notes.relation, oldImage: image, old: old, new: new)
    }

    private static func index(_ filter: String) throws -> PredicateIndex {
        var index = Notes.index()
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate(filter), member: 7)
        return index
    }

    @Test func `an update is found by a value that it replaced`() throws {
        var index = try Self.index("old.title=eq.tea")
        #expect(try index.certain(Self.update(["title": .text("tea")], ["title": .text("milk")])) == [7])
        #expect(try index.certain(Self.update(["title": .text("milk")], ["title": .text("tea")])).isEmpty)
        #expect(try index.certain(Notes.insert(["title": .text("tea")])).isEmpty)
        let delete = RowChange(
            operation: .delete, relation: Notes.relation, oldImage: .full, old: ["title": .text("tea")])
        #expect(try index.certain(delete) == [7])
    }

    @Test func `a value that an update left unchanged and did not send again has not changed`() throws {
        var index = try Self.index("changed=title")
        #expect(try index.certain(Self.update(["title": .text("tea")], ["title": .unchanged])).isEmpty)
        #expect(try index.certain(Self.update(["title": .text("tea")], ["title": .text("milk")])) == [7])
        #expect(try index.certain(Self.update(["title": .null], ["title": .text("milk")])) == [7])
    }

    @Test func `an update without the old values is left, and then undecided`() throws {
        for filter in ["changed=title", "old.title=eq.tea", "old.score=gt.3", "changed=not.title"] {
            var index = try Self.index(filter)
            let update = Self.update(["id": .text("1")], ["id": .text("2"), "title": .text("tea")], .key)
            let unkeyed = Self.update([:], ["id": .text("1"), "title": .text("tea")], .none)
            #expect(try index.matches([update, unkeyed]) == [Met(asking: [7]), Met(asking: [7])], "\(filter)")
            #expect(try index.left([update, unkeyed, Notes.insert(["title": .text("tea")])]) == [true, true, false])
        }
    }

    @Test func `the identity's columns are known of each update`() throws {
        var index = try Self.index("or=(old.id.eq.1,changed.id)")
        let same = Self.update([:], ["id": .text("2")], .none)
        let moved = Self.update(["id": .text("2")], ["id": .text("3")], .key)
        let first = Self.update([:], ["id": .text("1")], .none)
        #expect(try index.matches([same, moved, first]).map(\.certain) == [[], [7], [7]])
        #expect(try index.left([same, moved, first]) == [false, false, false])
    }

    @Test func `a policy also decides who may know the old row`() throws {
        var index = Notes.index()
        let mine = "00000000-0000-4000-8000-000000000001"
        let policy = try Notes.policy(Notes.equal("owner", mine))
        for (member, filter) in [(1, "old.title=eq.tea"), (2, "changed=title"), (3, "old.title=neq.tea")] {
            _ = index.add(
                table: 1, operations: .all, predicate: .both(try Notes.predicate(filter), policy),
                member: UInt32(member))
        }
        func update(_ owner: String, _ title: String) -> RowChange {
            Self.update(
                ["owner": .text(owner), "title": .text(title)], ["owner": .text(mine), "title": .text("milk")])
        }
        let other = "00000000-0000-4000-8000-000000000002"
        let changes = [update(mine, "tea"), update(mine, "milk"), update(other, "tea"), update(other, "milk")]
        #expect(try index.matches(changes).map(\.certain) == [[1, 2], [3], [2], [2]])
    }
}
