import Foundation
import Simulator
import TestSupport
import Testing

/// Tests of the hub in a simulator: hours of clients, faults and catalog changes in seconds.
@Suite(.within(minutes: 10)) struct SimulationTests {
    @Test("whatever happens, clients hear exactly what they had to, or are told", arguments: seeds(8))
    func seed(_ given: Seed) throws {
        let seed = given.number
        let simulation = try Simulation(seed: seed)
        defer { simulation.end() }
        let report = simulation.run(script(seed: seed, steps: 250))
        #expect(
            report.complaints.isEmpty,
            "\(report.complaints.prefix(3)); again: swift run simulate --seed \(seed) --steps 250")
        #expect(report.deliveries > 0)
    }

    @Test("without faults nobody is told of a loss")
    func calm() throws {
        var weather = Weather()
        weather.faults = false
        var shape = Shape.usual(seed: 1)
        shape.isRoomy = true
        let simulation = try Simulation(seed: 1, shape)
        defer { simulation.end() }
        // A client that returns after memberships changed receives a notice of a loss, so no client is cut in this
        // test.
        let steps = script(seed: 1, steps: 300, weather).filter { if case .cut = $0.action { false } else { true } }
        let report = simulation.run(steps)
        #expect(report.complaints.isEmpty)
        #expect(report.told == 0)
        #expect(report.deliveries > 100)
    }

    /// Runs one seed twice in a separate process. Other tests of this process start children. Each child has copies of
    /// the simulation's sockets until it runs its own program.
    @Test("a seed plays the same twice")
    func same() throws {
        let both = try Self.output("--seed", "5", "--steps", "200", "--trace", "--plays", "2")
        let (first, second) = (both.prefix(both.count / 2), both.suffix(both.count / 2))
        #expect(first.contains { $0.hasSuffix("subscribed") })
        let difference = zip(first, second).first { $0 != $1 }
        #expect(both.count % 2 == 0 && difference == nil, "first difference: \(String(describing: difference))")
    }

    @Test("a seed plays the same in every process, whatever its hashes are seeded with")
    func everywhere() throws {
        let first = try Self.output("--seed", "5", "--steps", "200", "--trace")
        #expect(first.contains { $0.hasSuffix("subscribed") })
        #expect(try first == Self.output("--seed", "5", "--steps", "200", "--trace"))
    }

    /// Returns all output of one process about the clients' events.
    private static func output(_ arguments: String...) throws -> [Substring] {
        let tests = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
        let program = tests.deletingLastPathComponent().appendingPathComponent("simulate").path
        let (text, code) = try said(by: [program] + arguments)
        #expect(code == 0)
        return text.split(separator: "\n").filter { $0.contains(" ms  ") }
    }
}
