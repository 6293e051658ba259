import Net
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 1)) struct DrainQueueTests {
    private static let second: UInt64 = 1_000_000_000

    private static func connections(_ count: Int) -> [ConnectionID] {
        (0..<UInt32(count)).map { ConnectionID(seat: $0, generation: 1) }
    }

    private final class Stage {
        var farewells: DrainQueue

        init(_ count: Int, within time: Duration, seed: UInt64 = 1) {
            var chance = SeededRandom(seed: seed)
            farewells = DrainQueue(DrainQueueTests.connections(count), within: time, from: 50, using: &chance)
        }

        func due(after nanoseconds: UInt64) -> [ConnectionID] { farewells.takeDue(50 + nanoseconds) }
    }

    @Test(arguments: [1, 2, 999, 20_000]) func `everybody goes, once, and within the time`(count: Int) {
        let stage = Stage(count, within: .seconds(10))
        var gone: [ConnectionID] = []
        for step in 0...1000 { gone += stage.due(after: UInt64(step) * 10_000_000) }
        #expect(stage.farewells.isOver)
        #expect(gone.count == count && Set(gone) == Set(Self.connections(count)))
    }

    @Test func `who is told to hurry has them go at once, each once`() {
        let stage = Stage(999, within: .seconds(10))
        let first = stage.due(after: Self.second / 2)
        let rest = stage.farewells.takeAll()
        #expect(!first.isEmpty && !rest.isEmpty && stage.farewells.isOver)
        #expect((first + rest).count == 999 && Set(first + rest) == Set(Self.connections(999)))
        #expect(stage.due(after: Self.second).isEmpty)
    }

    @Test func `many are spread evenly`() {
        let stage = Stage(20_000, within: .seconds(10))
        let counts = (1...10).map { stage.due(after: UInt64($0) * Self.second).count }
        #expect(counts == Array(repeating: 2000, count: 10))
    }

    @Test func `few do not take the time`() {
        let stage = Stage(250, within: .seconds(10))
        #expect(stage.due(after: Self.second / 4).count == 125)
        #expect(stage.due(after: Self.second / 2).count == 125)
        #expect(stage.farewells.isOver)
    }

    @Test func `without time all go at once`() {
        #expect(Stage(5000, within: .zero).due(after: 0).count == 5000)
    }

    @Test func `their order is one of chance`() {
        let orders = (1...3).map { Stage(100, within: .zero, seed: $0).due(after: 0) }
        #expect(Set(orders).count == 3)
    }

    @Test func `nobody is nothing`() { #expect(Stage(0, within: .seconds(10)).farewells.isOver) }
}
