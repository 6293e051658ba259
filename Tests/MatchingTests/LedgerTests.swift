import Change
import Policy
import TestSupport
import Testing

@testable import Matching

@Suite(.within(minutes: 5)) struct LedgerTests {
    private static let costly = "title=like.%a%a%a%a%a%b"
    private static let large = Notes.insert(["score": .text("7"), "title": .text(String(repeating: "a", count: 5000))])
    private static let small = Notes.insert(["score": .text("7"), "title": .text("aaaaab")])

    private static func index(_ allowance: Allowance) -> PredicateIndex {
        Notes.index(allowance: allowance)
    }

    @Test func `who takes little is tried however much others take`() throws {
        var index = Self.index(Allowance(ofChange: 100, ofAccount: 1000, most: 200_000, perMicrosecond: 1))
        for member in 0..<20 as Range<UInt32> {
            _ = index.add(
                table: 1, operations: .all, predicate: try Notes.predicate("or=(\(Self.group(member)))"),
                member: member, account: 7)
        }
        for member in 20..<120 as Range<UInt32> {
            _ = index.add(
                table: 1, operations: .all, predicate: try Notes.predicate("score=neq.\(1000 + member)"),
                member: member,
                account: member)
        }
        for _ in 0..<10 {
            #expect(try index.certain(Self.large) == Array(20..<120))
            #expect(index.takeStopped() == [7])
        }
        // A row with little work is compared with all filters.
        index.refillReserve(1)
        index.refillReserve(1_000_000_000)
        #expect(try index.certain(Self.small) == Array(0..<120))
        #expect(index.takeStopped() == [])
    }

    /// Returns filters that differ and have no node of the index in common.
    private static func group(_ number: UInt32) -> String {
        "title.like.%a%a%a%a%a%b,score.eq.\(1000 + number)"
    }

    @Test func `what is there for all comes back with time and no further`() throws {
        var index = Self.index(Allowance(ofChange: 0, ofAccount: 0, most: 150_000, perMicrosecond: 10))
        _ = index.add(table: 1, operations: .all, predicate: try Notes.predicate(Self.costly), member: 1, account: 1)
        index.refillReserve(1)
        // The work is 12 bytes of pattern by 5,000, plus the condition: 60,032.
        func tried() throws -> Int {
            var count = 0
            for _ in 0..<10 {
                _ = try index.certain(Self.large)
                if index.takeStopped().isEmpty { count += 1 }
            }
            return count
        }
        #expect(try tried() == 2)
        index.refillReserve(1 + 1_000_000)
        #expect(try tried() == 0)
        index.refillReserve(1 + 6_000_000)
        #expect(try tried() == 1)
        index.refillReserve(.max)
        #expect(try tried() == 2)
    }

    /// Checks the account of a filter that several channels share: one of them pays, and another one after that channel
    /// has left.
    @Test func `a filter that several share is answered for by one who is there`() throws {
        var index = Self.index(Allowance(ofChange: 0, ofAccount: 0, most: 10, perMicrosecond: 0))
        let predicate = try Notes.predicate(Self.costly)
        let handles = (1...5 as ClosedRange<UInt32>).map {
            index.add(table: 1, operations: .all, predicate: predicate, member: $0, account: $0)
        }
        var there = Set(1...5 as ClosedRange<UInt32>)
        for (handle, account) in zip(handles, 1...5 as ClosedRange<UInt32>) {
            _ = try index.certain(Self.large)
            let stopped = index.takeStopped()
            #expect(stopped.count == 1 && there.isSuperset(of: stopped))
            index.remove(handle)
            there.remove(account)
            index.checkInvariants()
        }
        #expect(try index.certain(Self.large) == [])
        #expect(index.takeStopped() == [])
    }

    @Test func `what a policy takes is not its holder's to answer for`() throws {
        var index = Self.index(Allowance(ofChange: 0, ofAccount: 0, most: 1000, perMicrosecond: 0))
        let policy = try Notes.policy(Notes.equal("score", "7"))
        let both = Predicate.both(try Notes.predicate("title=neq.x"), policy)
        #expect(both.effort == (try Notes.predicate("title=neq.x")).effort)
        _ = index.add(table: 1, operations: .all, predicate: both, member: 1, account: 1)
        for _ in 0..<100 {
            _ = try index.certain(Self.large)
            if index.takeStopped() == [1] { return }
        }
        Issue.record("a filter that counts nothing")
    }
}
