import Asking
import Diagnostics
import Synchronization

/// Learned sizes of statements for each `JudgingKey`, such as a policy. Also the keys about which the hub asks nothing
/// for a while, because they took too long.
final class JudgingPace: Sendable {
    private struct State {
        /// Maximum weight of one statement, for each key. The weight counts row-claims pairs and a fixed cost for each
        /// set of claims.
        var weights: [JudgingKey: Int] = [:]
        var penalties = Penalties<JudgingKey>(
            limit: Limits.maximumPolicyPenalties, each: Limits.policyPenalty)
    }

    private let state = Mutex(State())

    /// Cost of setting one set of claims, expressed as a number of rows.
    private static let weightOfClaims = 32
    private static let firstWeight = 32_768
    private static let leastWeight = 64
    private static let mostWeight = 4 << 20

    static func weight(claims: Int, rows: Int) -> Int { claims * (weightOfClaims + rows) }

    /// Returns how many sets of claims fit into one statement with this number of rows.
    func claims(_ key: JudgingKey, rows: Int) -> Int {
        let weight = state.withLock { $0.weights[key] } ?? JudgingPace.firstWeight
        assert((JudgingPace.leastWeight...JudgingPace.mostWeight).contains(weight), "what fits a statement is bounded")
        return max(1, weight / JudgingPace.weight(claims: 1, rows: rows))
    }

    /// Adapts the size of the key's next statement to the time in nanoseconds that this statement took.
    func took(_ key: JudgingKey, _ nanoseconds: UInt64, claims: Int, rows: Int) {
        precondition(claims > 0 && rows >= 0, "something was asked")
        let weight = JudgingPace.weight(claims: claims, rows: rows)
        let target = Double(Limits.policyStatementTarget.wholeNanoseconds)
        let fitting = Double(weight) * target / Double(max(1, nanoseconds))
        set(key) { before in min(fitting, Double(before) * 4) }
    }

    /// Reduces the size of the key's next statement after a timeout. Returns false if the statement had only one set of
    /// claims, so that it cannot be smaller.
    func wasTooSlow(_ key: JudgingKey, claims: Int, rows: Int) -> Bool {
        let weight = JudgingPace.weight(claims: claims, rows: rows)
        set(key) { _ in Double(weight) / 16 }
        return claims > 1
    }

    private func set(_ key: JudgingKey, _ change: (Int) -> Double) {
        state.withLock { state in
            if state.weights.count >= Limits.maximumPolicyPenalties { state.weights = [:] }
            let changed = change(state.weights[key] ?? JudgingPace.firstWeight)
            let bounded = min(Double(JudgingPace.mostWeight), max(Double(JudgingPace.leastWeight), changed))
            state.weights[key] = Int(bounded)
        }
    }

    // MARK: Penalties

    func isPenalised(_ key: JudgingKey, _ now: UInt64) -> Bool {
        state.withLock { $0.penalties.contains(key, at: now) }
    }

    func penalise(_ key: JudgingKey, _ now: UInt64) { state.withLock { $0.penalties.add(key, at: now) } }
}
