import Diagnostics
import Synchronization

/// Budget for objects that take memory for as long as a connection holds them: filter conditions or presence.
///
/// A project has its share of the process's budget, and a connection has a limit of its own. Connections that hold
/// little have a larger common budget than those that hold much, and neither group uses up the other's. The many with
/// small needs do not pay for the few with large ones.
public final class HolderBudget: Sendable {
    public struct Rules: Sendable {
        /// Budget of all connections that hold much, together.
        var limit: Int
        /// Limit of one connection.
        var ofHolder: Int
        /// Largest amount that counts as little.
        var few: Int
        /// Factor: all connections that hold little may together hold this many times `limit`.
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

    /// Returns the budget of one project: half of this one, on which it also draws.
    public func share() -> HolderBudget {
        var rules = rules
        rules.limit /= 2
        return HolderBudget(rules, of: self, held, refusals)
    }

    /// Reserves `count` more for a connection that already holds `held`.
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

    /// Gives back `count` of a connection that held `held` until now.
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
