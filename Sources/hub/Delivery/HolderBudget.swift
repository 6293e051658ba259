import Diagnostics
import Synchronization

/// What connections may hold together of something that takes room for as long as they hold it.
///
/// A project has its share of the process's, and a connection its own limit. Connections that hold little share more than
/// those that hold much, and neither uses up what the others have: the many who ask for a little do not pay for the few
/// who ask for a lot.
public final class HolderBudget: Sendable {
    public struct Rules: Sendable {
        /// Of those that hold much.
        var limit: Int
        /// Of one connection.
        var ofHolder: Int
        /// What is little.
        var few: Int
        /// Those that hold little may hold so many times the limit.
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

    /// One project's half of it.
    public func share() -> HolderBudget {
        var rules = rules
        rules.limit /= 2
        return HolderBudget(rules, of: self, held, refusals)
    }

    /// Takes more for a connection that has taken `held`.
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

    /// Of a connection that had `held` until now.
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
