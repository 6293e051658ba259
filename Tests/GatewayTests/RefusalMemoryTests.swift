import Diagnostics
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 1)) struct RefusalMemoryTests {
    private let minute = Limits.refusalNoteInterval.wholeNanoseconds
    private let ana = Array("ana".utf8)
    private let ben = Array("ben".utf8)

    @Test func `the same refusal is news once a minute, whatever numbers it names`() {
        var memory = RefusalMemory()
        var verdicts = (0..<3).map { memory.note(of: ana, [], "expired \($0) seconds ago", at: 5) }
        #expect(verdicts == [.news, .known, .known])
        verdicts = [
            memory.note(of: ben, [], "expired 9 seconds ago", at: 6), memory.note(of: ana, [1], "expired", at: 6),
            memory.note(of: ana, [], "no role", at: 6),
            memory.note(of: ana, [], "expired 7 seconds ago", at: 4 + minute),
            memory.note(of: ana, [], "expired 8 seconds ago", at: 5 + minute),
        ]
        #expect(verdicts == [.news, .news, .news, .known, .news])
    }

    @Test func `a user who is refused in many ways is noted so often, and then that there were more`() {
        var memory = RefusalMemory()
        let topics = (0..<UInt8(Limits.refusalsOfUser + 9)).map { [$0] }
        let verdicts = topics.map { memory.note(of: ana, $0, "expired", at: 0) }
        let isNoted = verdicts.prefix(Limits.refusalsOfUser).allSatisfy { $0 == .news }
        #expect(isNoted && verdicts[Limits.refusalsOfUser] == .tooMany)
        #expect(verdicts.dropFirst(Limits.refusalsOfUser + 1).allSatisfy { $0 == .known })
        let later = memory.note(of: ana, [0], "expired", at: minute)
        #expect(later == .news)
    }

    @Test func `at the limit of users refusals are noted again rather than not at all`() {
        var memory = RefusalMemory()
        let users = (0...UInt16(Limits.usersWithRefusals)).map { [UInt8($0 >> 8), UInt8(truncatingIfNeeded: $0)] }
        let verdicts = (users + [users[0]]).map { memory.note(of: $0, [], "expired", at: 0) }
        #expect(verdicts.allSatisfy { $0 == .news })
    }
}
