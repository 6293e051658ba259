import Diagnostics
import Foundation
import System

/// Command `simulate`: runs the hub against a model of the database and its clients. Seeds determine each run.
public enum Command {
    private static let usage = """
        swift run simulate [--seed N] [--seeds COUNT] [--plays N] [--steps M] [--clients N] [--until N] [--calm] [--first] [--trace]

        Plays the hub in one thread on a clock of its own: the stream from a model of PostgreSQL, the event log on a disk
        that fails, delivery on two loops, and clients that come, go, freeze and are cut off. What each client hears is
        held against what it had to. A seed always plays the same, in a process that starts no others: until a child runs
        its own program, it keeps copies of the sockets, and they end late.

          --seed N       the first seed (1)
          --seeds COUNT  so many seeds, one after the other (1)
          --plays N      play each seed so often (1)
          --steps M      steps of each seed (600)
          --clients N    so many clients; beyond six they are a crowd, who ask what many others ask
                         (six, and a crowd with one seed of ten)
          --until N      end when so many changes were delivered, though seeds are left
          --calm         without faults
          --first        end with the first seed that fails, without looking for a shorter script
          --trace        print every step, and what clients hear; of the shorter script, too
        """

    public static func run(_ arguments: [String]) -> Int32 {
        var (seed, seeds, plays, stepCount) = (UInt64(1), UInt64(1), UInt64(1), 600)
        var weather = Weather()
        var (isTraced, shrinks) = (false, true)
        var given: Shape?
        var mostDeliveries = UInt64.max
        var rest = arguments[...]
        while let option = rest.popFirst() {
            switch option {
            case "--seed": seed = number(&rest) ?? seed
            case "--seeds": seeds = number(&rest) ?? seeds
            case "--plays": plays = number(&rest) ?? plays
            case "--steps": stepCount = Int(number(&rest) ?? UInt64(stepCount))
            case "--clients": given = number(&rest).map { Shape(clients: Int(clamping: $0)) }
            case "--until": mostDeliveries = number(&rest) ?? mostDeliveries
            case "--calm": weather.faults = false
            case "--first": shrinks = false
            case "--trace": isTraced = true
            default:
                print(usage)
                return option == "--help" ? 0 : 2
            }
        }
        Log.shared.configure(level: isTraced ? .info : .error, format: .text)
        var total = Totals()
        let began = ContinuousClock.now
        var told = began
        DescriptorTable.raiseLimit()
        for seed in (seed..<seed + seeds).lazy.flatMap({ seed in (0..<plays).map { _ in seed } })
        where total.deliveries < mostDeliveries {
            let shape = given ?? .usual(seed: seed)
            let steps = script(seed: seed, steps: stepCount, weather, shape)
            guard let report = play(seed, shape, steps, isTraced) else { return 1 }
            total.add(report)
            if ContinuousClock.now - told > .seconds(300) {
                told = .now
                print(total.summary(told - began))
                fflush(nil)
            }
            guard report.complaints.isEmpty else {
                tell(seed, report)
                if shrinks { shrink(seed, shape, steps, isTraced) }
                let clients = given.map { " --clients \($0.clients)" } ?? ""
                print("again: swift run simulate --seed \(seed) --steps \(stepCount)\(clients)")
                return 1
            }
        }
        total.tell(ContinuousClock.now - began)
        return 0
    }

    private static func number(_ rest: inout ArraySlice<String>) -> UInt64? { rest.popFirst().flatMap { UInt64($0) } }

    private static func play(_ seed: UInt64, _ shape: Shape, _ steps: [Step], _ isTraced: Bool) -> Simulation.Report? {
        do {
            let simulation = try Simulation(seed: seed, shape)
            defer { simulation.end() }
            return simulation.run(steps, trace: isTraced ? { print($0) } : nil)
        } catch {
            print("the simulation could not be set up: \(error)")
            return nil
        }
    }

    private static func tell(_ seed: UInt64, _ report: Simulation.Report) {
        print("seed \(seed) fails:")
        for complaint in report.complaints.prefix(10) { print("  \(complaint)") }
    }

    private static func shrink(_ seed: UInt64, _ shape: Shape, _ steps: [Step], _ isTraced: Bool) {
        print("looking for a shorter script …")
        let shrunk = Shrinking(seed, shape, steps).run()
        print("the shortest script that fails as well, of \(shrunk.steps.count) steps:")
        for step in shrunk.steps { print("  \(step)") }
        for complaint in shrunk.complaints.prefix(3) { print("  \(complaint)") }
        if isTraced { _ = play(seed, shape, shrunk.steps + [Step(action: .settle, milliseconds: 0)], true) }
    }
}

/// Sums of the reports of several seeds.
struct Totals {
    private var report = Simulation.Report()
    private var seeds = 0

    var deliveries: UInt64 { UInt64(report.deliveries) }

    mutating func add(_ other: Simulation.Report) {
        seeds += 1
        report.deliveries += other.deliveries
        report.said += other.said
        report.joins += other.joins
        report.resumed += other.resumed
        report.refetched += other.refetched
        report.returned += other.returned
        report.rejoined += other.rejoined
        report.parked += other.parked
        report.passedOver += other.passedOver
        report.letGo += other.letGo
        report.told += other.told
        report.toldOfGaps += other.toldOfGaps
        report.excused += other.excused
        report.faults += other.faults
        report.commits += other.commits
        report.changes += other.changes
        report.bytesHeard += other.bytesHeard
        report.milliseconds += other.milliseconds
        report.fingerprint = report.fingerprint &* 31 &+ other.fingerprint
        report.coverage.merge(other.coverage, uniquingKeysWith: +)
    }

    func tell(_ elapsed: Duration) {
        print("stage × event")
        for (name, count) in report.coverage.sorted(by: { $0.key < $1.key }) { print("  \(count)  \(name)") }
        print(summary(elapsed))
        print("nothing was lost in silence; fingerprint \(String(report.fingerprint, radix: 16))")
    }

    func summary(_ elapsed: Duration) -> String {
        let seconds = Double(elapsed.components.seconds) + Double(elapsed.components.attoseconds) / 1e18
        let hours = Double(report.milliseconds) / 3_600_000
        let rate = Int(Double(report.deliveries) / max(seconds, 0.001))
        return """
            \(seeds) seeds, \(String(format: "%.2f", hours)) h simulated in \(String(format: "%.1f", seconds)) s; \
            \(report.commits) commits, \(report.changes) changes, \(report.deliveries) deliveries (\(rate)/s) and \
            \(report.said) of messages, \
            \(report.joins) joins (\(report.resumed) went on where they had been, \(report.refetched) could not, \
            \(report.returned) came back without asking, \
            \(report.rejoined) joined again where they were), \(report.parked) times parked, \
            \(report.passedOver) segments passed over and \(report.letGo) let go of, \(report.faults) faults, \
            \(report.told) times told (\(report.toldOfGaps) of gaps), \(report.excused) excused
            """
    }
}
