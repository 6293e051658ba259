import Diagnostics
import Synchronization

/// Budget for objects that use memory while a connection holds them: filter conditions or presence.
///
/// The process has one budget, and each project has a share of it. Each connection has a limit too. Connections that
/// hold little and those that hold much draw on separate amounts, so that a few large ones cannot use up the room of
/// many small ones.
public final class HolderBudget: Sendable {
    public struct Rules: Sendable {
        /// Maximum number of objects that all connections with large holdings may have together.
        var limit: Int
        /// Maximum number of objects that one connection may have.
        var ofHolder: Int
        /// Largest number of objects that counts as a small holding.
        var few: Int
        /// Factor for connections with small holdings: together they may have this many times `limit`.
        var timesForFew: Int

        public init(limit: Int, ofHolder: Int, few: Int, timesForFew: Int) {
            self.limit = limit
            self.ofHolder = ofHolder
            self.few = few
            self.timesForFew = timesForFew
        }
    }

    public typealias Refusal = ProcessMetrics.RoomRefused

    private let rules: Rules
    private let whole: HolderBudget?
    private let ofFew = Atomic<Int>(0)
    private let ofMany = Atomic<Int>(0)
    private let held: Gauge
    private let refusals: CounterFamily<Refusal>

    public init(_ rules: Rules, of whole: HolderBudget? = nil, _ held: Gauge, _ refusals: CounterFamily<Refusal>) {
        self.rules = rules
        self.whole = whole
        self.held = held
        self.refusals = refusals
    }

    /// Returns the budget of one project: at most half of this budget, against which it also counts.
    public func share() -> HolderBudget {
        var rules = rules
        rules.limit /= 2
        return HolderBudget(rules, of: self, held, refusals)
    }

    /// Reserves `count` more objects for a connection that already holds `held`. Throws if a limit is reached.
    public func take(_ count: Int, of held: Int) throws(Refusal) {
        assert(held >= 0, "nobody holds less than nothing")
        guard count > 0 else { return }
        guard held + count <= rules.ofHolder else { throw refused(.connection) }
        move(from: held, to: held + count)
        guard hasRoom(isLittle: isLittle(held + count)) else {
            move(from: held + count, to: held)
            throw refused(.project)
        }
        self.held.add(Int64(count))
    }

    /// Releases `count` of the `held` objects that a connection has reserved.
    public func give(back count: Int, of held: Int) {
        guard count > 0 else { return }
        assert(count <= held, "nobody gives back more than was taken")
        move(from: held, to: held - count)
        self.held.add(-Int64(count))
    }

    private func refused(_ why: Refusal) -> Refusal {
        refusals[why].add()
        return why
    }

    private func isLittle(_ held: Int) -> Bool { held <= rules.few }

    private func move(from before: Int, to after: Int) {
        add(-before, isLittle(before))
        add(after, isLittle(after))
        whole?.move(from: before, to: after)
    }

    private func add(_ count: Int, _ isLittle: Bool) {
        if isLittle { ofFew.add(count, ordering: .relaxed) } else { ofMany.add(count, ordering: .relaxed) }
    }

    private func hasRoom(isLittle: Bool) -> Bool {
        let isThere =
            isLittle
            ? ofFew.load(ordering: .relaxed) <= rules.timesForFew * rules.limit
            : ofMany.load(ordering: .relaxed) <= rules.limit
        return isThere && whole?.hasRoom(isLittle: isLittle) ?? true
    }
}

extension ProcessMetrics.RoomRefused: Error {}
