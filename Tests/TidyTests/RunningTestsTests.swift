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
}
