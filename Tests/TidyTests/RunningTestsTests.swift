import Synchronization
import System
import Testing

@testable import TestSupport

@Suite(.within(minutes: 5)) struct RunningTestsTests {
    @Test func `names those whose time is up, and no others`() {
        var tests = RunningTests()
        let short = tests.begin("short", deadline: 10)
        _ = tests.begin("long", deadline: 100)
        let ended = tests.begin("ended", deadline: 10)
        tests.end(ended)
        #expect(tests.overdue(at: 9).isEmpty)
        #expect(tests.overdue(at: 10) == ["short"])
        #expect(tests.overdue(at: 100) == ["long", "short"])
        tests.end(short)
        #expect(tests.overdue(at: 99).isEmpty)
    }

    @Test func `a seed says how to have it again`() {
        let seed = seeds(1, file: "RoomTests/SomeTests.swift")[0]
        #expect(seed.testDescription == "\(seed), again with SEED=\(seed) swift test --filter SomeTests.swift")
    }

    @Test func `as many run at once as there are turns, links of a chain before others`() throws {
        let turns = Turns(1)
        let order = Mutex<[Int]>([])
        try onThisThread { await turns.take(isInChain: false) }
        let threads = try [false, false, true, true].enumerated().map { number, isInChain in
            let thread = try BackgroundThread("turn \(number)") {
                try? onThisThread { await turns.take(isInChain: isInChain) }
                order.withLock { $0.append(number) }
                turns.pass()
            }
            try #require(eventually { turns.waitingCount == number + 1 })
            return thread
        }
        #expect(order.withLock(\.self).isEmpty)
        turns.pass()
        for thread in threads { thread.join() }
        #expect(order.withLock(\.self) == [2, 3, 0, 1])
        try onThisThread { await turns.take(isInChain: true) }
        #expect(turns.waitingCount == 0)
    }
}
