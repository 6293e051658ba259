import Asking
import Diagnostics
import Synchronization

/// How much of something fits one statement, and what took so long that it is not asked for a while.
final class JudgingPace: Sendable {
    private struct State {
        /// Claims, each weighed with its rows, in one statement.
        var weights: [JudgingKey: Int] = [:]
        var penalties = Penalties<JudgingKey>(
            limit: Limits.maximumPolicyPenalties, each: Limits.policyPenalty)
    }

    private let state = Mutex(State())

    /// What setting the claims costs, in rows.
    private static let weightOfClaims = 32
    private static let firstWeight = 32_768
    private static let leastWeight = 64
    private static let mostWeight = 4 << 20

    static func weight(claims: Int, rows: Int) -> Int { claims * (weightOfClaims + rows) }

    /// How many claims go into one statement with so many rows.
    func claims(_ key: JudgingKey, rows: Int) -> Int {
        let weight = state.withLock { $0.weights[key] } ?? JudgingPace.firstWeight
        assert((JudgingPace.leastWeight...JudgingPace.mostWeight).contains(weight), "what fits a statement is bounded")
        return max(1, weight / JudgingPace.weight(claims: 1, rows: rows))
    }

    /// A statement took so long: the next is so large that it takes about as long as it should.
    func took(_ key: JudgingKey, _ nanoseconds: UInt64, claims: Int, rows: Int) {
        precondition(claims > 0 && rows >= 0, "something was asked")
        let weight = JudgingPace.weight(claims: claims, rows: rows)
        let target = Double(Limits.policyStatementTarget.wholeNanoseconds)
        let fitting = Double(weight) * target / Double(max(1, nanoseconds))
        set(key) { before in min(fitting, Double(before) * 4) }
    }

    /// False where it could not be less.
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

    // MARK: What takes too long

    func isPenalised(_ key: JudgingKey, _ now: UInt64) -> Bool {
        state.withLock { $0.penalties.contains(key, at: now) }
    }

    func penalise(_ key: JudgingKey, _ now: UInt64) { state.withLock { $0.penalties.add(key, at: now) } }
}
